"""pyright infers of typed records what mypy does; mypy checks the same file in `make check`."""

import json

import pytest

from processes.command_line import ROOT
from processes.documentation_page import blocks
from processes.pyright import run_pyright

PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "decisions" not in page.parts)]


@pytest.mark.servers  # `make servers` installs it
def test_pyright_infers_the_types_of_values_without_a_cast():
    ended = run_pyright("pyrightconfig.json")

    assert ended.returncode == 0, ended.stdout
    assert "0 errors" in ended.stdout


@pytest.mark.servers
def test_pyright_accepts_the_programs_of_the_pages(tmp_path):
    """The programs of a page are in a folder of their own.

    Not checked are packages that may be missing, and attributes of the programs' own that may be None.
    """
    count = 0
    for page in PAGES:
        for block in blocks(page, {}):
            if block.file_name is not None and block.file_name.endswith(".py"):
                folder = tmp_path / page.relative_to(ROOT).with_suffix("").as_posix().replace("/", "-")
                program = folder / block.file_name
                program.parent.mkdir(parents=True, exist_ok=True)
                program.write_text(block.text)
                count += 1
    settings = {"include": ["."], "extraPaths": [str(ROOT / "src")], "typeCheckingMode": "standard"}
    unchecked = ("reportMissingImports", "reportOptionalMemberAccess", "reportOptionalContextManager")
    settings |= dict.fromkeys(unchecked, "none")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))

    ended = run_pyright(str(tmp_path))

    assert count > 30
    assert ended.returncode == 0, ended.stdout
