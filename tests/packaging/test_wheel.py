"""What users install: the whole package and nothing beside it, also from a checkout without symbolic links."""

import ast
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from processes.command_line import ROOT
from processes.package_build import build

pytestmark = pytest.mark.slow
SOURCES = ROOT / "src"
LINKS = ("publishers", "consumer", "fetcher", "plugins")


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as content:
        return set(content.namelist())


@pytest.fixture(scope="module")
def names(built) -> set[str]:
    (wheel,) = built.glob("*.whl")
    return names_in(wheel)


def test_every_module_is_in_the_wheel(names):
    modules = {str(file.relative_to(SOURCES)) for file in SOURCES.rglob("*.py")}

    assert modules
    assert modules - names == set()


def test_every_folder_is_a_package_that_says_what_is_inside():
    folders = {file.parent for file in (SOURCES / "recordpublisher").rglob("*.py")}

    assert [
        folder for folder in folders if not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    ] == []


def test_the_links_at_the_top_lead_into_the_package():
    assert {link: link_target(ROOT / link) for link in LINKS} == {link: f"src/recordpublisher/{link}" for link in LINKS}


def link_target(link):
    """Git without symbolic links checks a link out as a text file with its target."""
    return str(link.readlink()) if link.is_symlink() else link.read_text(encoding="utf-8")


def test_nothing_generic_lands_on_the_top_level(names):
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}

    formats = {"pyspark_recordpublisher.py", "pyspark_recordpublisher_format.py"}
    assert top == {"recordpublisher", "pytest_recordpublisher.py", *formats}


def test_the_wheel_is_typed_and_has_its_licence_and_its_command(names):
    assert {"recordpublisher/py.typed", "recordpublisher/__init__.pyi"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("entry_points.txt") for name in names)


def test_the_templates_of_plugins_are_in_the_wheel(names):
    templates = {str(file.relative_to(SOURCES)) for file in (SOURCES / "recordpublisher/cli").rglob("*.txt")}

    assert len(templates) == 15
    assert templates <= names


def test_the_dashboard_and_the_alert_rules_are_in_the_wheel(names):
    assert {
        "recordpublisher/plugins/metrics/prometheus/grafana-dashboard.json",
        "recordpublisher/plugins/metrics/prometheus/alert-rules.yml",
    } <= names


def test_the_page_of_the_dashboard_is_in_the_wheel(names):
    assert {f"recordpublisher/plugins/dashboard/web/page.{kind}" for kind in ("html", "css", "js")} <= names


def test_no_test_is_in_the_wheel(names):
    tests = [name for name in names if "/tests/" in name or "/test_" in name]

    assert not [name for name in tests if not name.startswith("recordpublisher/cli/plugin_templates/")]


def test_a_wheel_straight_from_the_checkout_is_the_same(checkout, names, tmp_path):
    done = build(checkout, "--wheel", "--outdir", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")

    assert names_in(wheel) == names


def test_the_installed_wheel_runs_without_the_checkout(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(tmp_path)
    script = "import recordpublisher as rp; print(rp.__file__, rp.DataFetcher.__name__, rp.MemorySink.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == [str(tmp_path / "recordpublisher" / "__init__.py"), "DataFetcher", "MemorySink"]


def test_pytest_finds_the_fixtures_of_the_installed_wheel(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(tmp_path / "site")
    test = "def test_it(kinesis_stream): kinesis_stream.put(b'1')"
    (tmp_path / "test_job.py").write_text(test)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "test_job.py"],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "site")}, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_checkout_without_symbolic_links_builds_the_same_wheel(checkout, names, tmp_path):
    copy = tmp_path / "flat"
    shutil.copytree(checkout, copy, symlinks=True)
    for link in LINKS:
        (copy / link).unlink()
        (copy / link).write_text(f"src/recordpublisher/{link}")  # what git leaves where links cannot be made
    done = build(copy, "--wheel", "--outdir", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")

    assert names_in(wheel) == names
