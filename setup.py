"""The description on the package index: README.md, whose links lead into the documentation's site."""

import re
import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - pip runs this file before it reads requires-python
    sys.exit(f"recordpublisher needs Python 3.11 or newer, and this is {sys.version.split()[0]}")

import tomllib  # new in 3.11

from setuptools import setup

HERE = Path(__file__).parent
SITE = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Documentation"]


def on_the_site(link: re.Match[str]) -> str:
    """Pages of docs/ and of the top are pages of the site, a README the page of its folder; pictures keep their names."""
    path, anchor = link[1].removeprefix("docs/"), link[2] or ""
    if path.endswith(".md"):
        path = f"{path.removesuffix('.md').lower()}/".removesuffix("readme/")
    return f"]({SITE}{path}{anchor})"


def description() -> str:
    """README.md with absolute links. Links within the page and absolute ones stay."""
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)", on_the_site, readme)


setup(long_description=description(), long_description_content_type="text/markdown")
