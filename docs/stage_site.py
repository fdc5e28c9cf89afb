"""Writes what the site is built from into build/: the pages, with links that lead inside the site, and its settings. Run by `make docs`."""

from __future__ import annotations

import os
import re
import shutil
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
BUILD = ROOT / "build"
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
KEY_OF_A_ROW = re.compile(r"^\| `([\w.<>-]+\.[\w.<>-]+)` \|", re.MULTILINE)
PUBLISHED = (".md", ".svg", ".png", ".css")


def stage(build: Path = BUILD) -> None:
    """Write every page and picture, the files that pages link to, and the settings."""
    pages = build / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    for source in _sources():
        place = pages / place_of(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            place.write_text(with_links_of_the_site(source, pages), encoding="utf-8")
        else:
            shutil.copy(source, place)
    shutil.copy(DOCS / "zensical.toml", build)


def _sources() -> list[Path]:
    found = [*sorted(DOCS.rglob("*")), *sorted(ROOT.glob("*.md"))]
    return [source for source in found if source.suffix in PUBLISHED and source != ROOT / "README.md"]


def place_of(source: Path) -> Path:
    """Where a file is on the site: README.md is its first page; what is no page and no picture lies in `files`."""
    if source.suffix not in PUBLISHED:
        return Path("files", source.name)
    if not source.is_relative_to(DOCS):
        return Path(source.name.lower())
    inside = source.relative_to(DOCS)
    return inside.with_name("index.md") if inside.name == "README.md" else inside


def with_links_of_the_site(page: Path, target: Path) -> str:
    """The text of a page with its links as they are on the site; a file that is no page is copied into `files` there."""

    def link(found: re.Match[str]) -> str:
        source = (page.parent / found[1]).resolve()
        if source.is_dir():
            raise ValueError(
                f"{page}: the link '{found[1]}' leads to a folder; valid: a file, for example its README.md"
            )
        place = place_of(source)
        if place.parts[0] == "files":
            (target / "files").mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / place)
        return f"]({os.path.relpath(place, place_of(page).parent)}{found[2] or ''})"

    return KEY_OF_A_ROW.sub(_with_breaks, LINK.sub(link, page.read_text(encoding="utf-8")))


def _with_breaks(found: re.Match[str]) -> str:
    """A key that a narrow column may break after its dots; `site.css` forbids it inside words."""
    return f"| <code>{escape(found[1]).replace('.', '.<wbr>')}</code> |"


if __name__ == "__main__":
    stage()
