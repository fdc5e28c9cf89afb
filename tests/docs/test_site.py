"""The site: every page is found in its menu, and a built page loads nothing from elsewhere."""

import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes.command_line import ROOT

STAGE_SITE = runpy.run_path(str(ROOT / "docs/stage_site.py"))
stage = STAGE_SITE["stage"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    stage(folder / "build")
    return folder


def pages_of(menu: list) -> Iterator[str]:
    for entry in menu:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from pages_of(below) if isinstance(below, list) else [below]


def test_the_menu_has_every_page_once(folder):
    staged = folder / "build/pages"
    menu = tomllib.loads((folder / "build/zensical.toml").read_text())["project"]["nav"]

    assert sorted(pages_of(menu)) == sorted(str(page.relative_to(staged)) for page in staged.rglob("*.md"))


def test_links_lead_to_staged_files(folder):
    for page in (folder / "build/pages").rglob("*.md"):
        for target in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_a_link_to_a_folder_is_an_error_that_names_page_and_link(tmp_path):
    (tmp_path / "examples").mkdir()
    page = tmp_path / "page.md"
    page.write_text("See [examples](examples/).")

    with pytest.raises(ValueError, match=r"page\.md: the link 'examples/' leads to a folder"):
        STAGE_SITE["with_links_of_the_site"](page, tmp_path / "site")


def test_the_generators_of_pages_are_not_published(folder):
    published = {file.name for file in (folder / "build/pages").rglob("*.*")}

    assert published & {file.name for file in (ROOT / "docs").glob("*.py")} == set()


def test_the_blocks_of_the_readme_are_pasted_whole():
    assert re.findall(r"^ *[$>] .*", (ROOT / "README.md").read_text(), re.MULTILINE) == []


def test_the_copy_button_leaves_prompts_and_output_out(folder):
    """The button sets this attribute while it takes the text that is displayed."""
    style = (folder / "build/pages/site.css").read_text()

    assert "code[data-md-copying] .gp,\ncode[data-md-copying] .go {\n  display: none;\n}" in style
    assert tomllib.loads((folder / "build/zensical.toml").read_text())["project"]["extra_css"] == ["site.css"]


def test_keys_in_the_first_column_of_a_table_break_after_their_dots_only(folder):
    page = (folder / "build/pages/reference/properties.md").read_text()
    style = (folder / "build/pages/site.css").read_text()

    assert "| <code>aws.<wbr>credentials.<wbr>provider.<wbr>basic.<wbr>accesskeyid</code> |" in page
    assert "| <code>aws.<wbr>endpoint.<wbr>&lt;name&gt;</code> |" in page
    assert ".md-typeset td code {\n  overflow-wrap: normal;\n  word-break: normal;\n}" in style
    assert "<wbr>" not in (ROOT / "docs/reference/properties.md").read_text()


@pytest.mark.slow
def test_the_strictly_built_site_loads_nothing_from_elsewhere(folder):
    command = [Path(sys.executable).parent / "zensical", "build", "--strict", "--config-file", "build/zensical.toml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [page.read_text() for page in (folder / "build/site").rglob("*.html")]

    assert len(pages) > 50
    assert [
        loaded for page in pages for loaded in re.findall(r"<(?:script|link|img|iframe)[^>]*=\"?https?://[^>]*>", page)
    ] == []


def heads(page: Path) -> str:
    """What a search weighs most: the title, the headings, and the first sentences."""
    text = page.read_text()
    return "\n".join([*re.findall(r"^#+ .*", text, re.MULTILINE), text.partition("\n\n")[2][:400]]).lower()


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("install", "install.md"),
        ("poison", "how-to/bad-records.md"),
        ("dead letter", "how-to/bad-records.md"),
        ("dataclass", "how-to/decode-records.md"),
        ("unable to locate credentials", "reference/errors.md"),
        ("data_source_not_found", "reference/errors.md"),
        ("kcl", "migrate/from-kcl.md"),
        ("exactly once", "how-to/write-to-a-database.md"),
    ],
)
def test_what_people_search_for_is_in_the_heads_of_a_page(folder, words, page):
    assert words in heads(folder / "build/pages" / page)


def test_a_page_opens_with_words_for_its_reader(folder):
    """No note about how it was made, no id of a rule, outside of the pages about decisions and rules."""
    pages = [page for page in (folder / "build/pages").rglob("*.md") if not {"decisions"} & set(page.parts)]
    opening = {page.name: page.read_text().partition("\n\n")[2][:300] for page in pages}

    assert [name for name, text in opening.items() if "Written by" in text or text.startswith("<!--")] == []
