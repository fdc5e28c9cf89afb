"""What a package index shows of the package: its description and its links."""

import re
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message

import pytest
from readme_renderer import markdown

from processes.command_line import ROOT

pytestmark = pytest.mark.slow
SITE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Documentation"]


@pytest.fixture(scope="module")
def metadata(built) -> Message:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        (name,) = [each for each in content.namelist() if each.endswith(".dist-info/METADATA")]
        return message_from_bytes(content.read(name))


def links_of(html: str) -> list[str]:
    return re.findall(r'(?:href|src)="([^"]*)"', html)


def test_the_description_renders_and_none_of_its_links_is_relative(metadata):
    assert metadata["Description-Content-Type"] == "text/markdown"

    html = markdown.render(metadata.get_payload())

    assert html
    assert [link for link in links_of(html) if not link.startswith(("https://", "#"))] == []


def test_links_lead_to_pages_and_pictures_of_the_site(metadata):
    links = set(re.findall(rf"\]\({re.escape(SITE)}([^)#]*)", metadata.get_payload()))
    documents = {str(file.relative_to(ROOT / "docs").with_suffix("")) for file in (ROOT / "docs").rglob("*.md")}
    pages = {f"{name}/".removesuffix("README/") for name in documents}
    pages |= {f"{file.stem.lower()}/" for file in ROOT.glob("*.md")}
    pictures = {str(file.relative_to(ROOT / "docs")) for file in (ROOT / "docs/images").iterdir()}

    assert {"", "contributing/", "migrate/", "quick-start/script/", "images/demo.svg"} <= links
    assert links - pages - pictures == set()


def test_the_metadata_name_authors_licence_and_site(metadata):
    assert metadata["Author"] == "the recordpublisher developers"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("Project-URL") == [f"Documentation, {SITE}"]
