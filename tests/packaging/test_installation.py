"""What an installer does with our requirements: every version is right at the first try, and everything imported is declared."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from processes.command_line import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BROUGHT_BY = {"botocore": "aiobotocore", "hyperframe": "h2", "multidict": "aiohttp"}
"""Imported by us, and required by a requirement of ours: aiobotocore allows few versions, the frames of h2 and the values of
aiohttp are of these classes."""
NO_INDEX = "the package index cannot be reached: what an installer would choose is not known"


@pytest.fixture(scope="module")
def plain_requirements(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("plain") / "requirements.txt"
    file.write_text("\n".join(PROJECT["dependencies"]))
    return file


def installer_says(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    said = done.stdout + done.stderr
    if done.returncode and re.search(
        r"connect|resolve host|network|timed out|No matching distribution", said, re.IGNORECASE
    ):
        assert os.environ.get("CI") != "true", said
        pytest.skip(NO_INDEX)
    assert done.returncode == 0, said
    return said


@pytest.mark.slow
def test_pip_finds_a_plain_install_without_trying_again(plain_requirements):
    said = installer_says(
        *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--disable-pip-version-check"),
        *("--only-binary", ":all:", "-r", str(plain_requirements)),
    )

    collected = [name.lower() for name in re.findall(r"Collecting ([\w.-]+)", said)]
    assert {"aiobotocore", "msgspec"} <= set(collected)
    assert sorted(set(collected)) == sorted(collected), "a second version of a package was tried"
    assert "boto3" not in collected


@pytest.mark.slow
def test_uv_finds_a_plain_install_without_trying_again(plain_requirements, tmp_path):
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    said = installer_says(
        uv, "pip", "compile", "--verbose", "--no-header", "--cache-dir", str(tmp_path), str(plain_requirements)
    )

    chosen = set(re.findall(r"Selecting: ([\w.-]+)==(\S+)", said))
    assert {"aiobotocore", "msgspec"} <= {name for name, _ in chosen}
    assert len(chosen) == len({name for name, _ in chosen}), "a second version of a package was tried"


def declared(requirements: list[str]) -> set[str]:
    return {Requirement(line).name.lower() for line in requirements}


def imported(folder: Path) -> set[str]:
    """Top-level names that the package imports, also inside functions."""
    names = set()
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"recordpublisher"}


NOT_NEEDED = {
    "annotationlib",  # of the standard library, from Python 3.14 on
    "certifi",  # whose list of CAs is used where it is installed, as the SDK does
    "pydantic",  # whose models users may give
    "typing_extensions",  # for type checkers, which have it
}


@pytest.mark.slow
def test_everything_imported_is_declared():
    every = declared(PROJECT["dependencies"]) | declared(
        [line for extra, lines in PROJECT["optional-dependencies"].items() if extra != "dev" for line in lines]
    )
    every |= {name for name, by in BROUGHT_BY.items() if by in every and name in declared(requires(by))}
    of_module = packages_distributions()
    used = {module: {name.lower() for name in of_module.get(module, [module])} for module in imported(ROOT / "src")}

    assert {module for module, names in used.items() if not names & every} == NOT_NEEDED


def test_every_requirement_of_the_core_has_a_lower_bound():
    without = [
        line
        for line in PROJECT["dependencies"]
        if not any(each.operator == ">=" for each in Requirement(line).specifier)
    ]

    assert without == []


def test_what_the_demo_says_before_it_installs_needs_nothing_that_is_installed(tmp_path):
    command = [sys.executable, "-S", str(ROOT / ".ci/before_demo.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout.startswith("The demo needs an environment in ")
    assert "Traceback" not in done.stderr
