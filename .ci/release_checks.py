"""What must be true of a checkout before it is released; `make release` runs this first, since it is quick."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path


def objections(root: Path) -> Iterator[str]:
    """Each sentence names what is wrong and what to do."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = project["version"]
    for name, url in project["urls"].items():
        if re.search(r"\.example(/|$)", url):
            yield f"pyproject.toml: the address {name} is {url}: write the public one"
    heading = re.search(
        rf"^## \[{re.escape(version)}\] - (.*)$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    if heading is None:
        yield f"CHANGELOG.md: no heading for version {version}: write '## [{version}] - YYYY-MM-DD'"
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[1]):
        yield f"CHANGELOG.md: version {version} is '{heading[1]}': write the date as YYYY-MM-DD"
    if git(root, "status", "--porcelain"):
        yield "git: files are changed or new: commit them"
    if git(root, "tag", "--list", f"v{version}"):
        yield f"git: the tag v{version} is taken: raise the version in pyproject.toml"


def git(root: Path, *arguments: str) -> str:
    """What a git command prints."""
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit("\n".join(objections(Path(__file__).parent.parent)) or None)
