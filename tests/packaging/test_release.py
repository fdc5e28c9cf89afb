"""What `make release` objects to, that workflows run commands there are, and that a target that names folders leaves out no test."""

import re
import runpy
import subprocess

import pytest
import yaml

from processes.command_line import ROOT

objections = runpy.run_path(str(ROOT / ".ci/release_checks.py"))["objections"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z][\w%.-]*):", MAKEFILE, re.MULTILINE))
VARIABLES = dict(re.findall(r"^(\w+) :?= (.*)$", MAKEFILE, re.MULTILINE))
RECIPES = [
    re.sub(r"\$\((\w+)\)", lambda found: VARIABLES.get(found[1], found[0]), line)
    for line in MAKEFILE.splitlines()
    if line.startswith("\t") and "pytest" in line
]
SOURCES = [file for folder in ("tests", "research") for file in (ROOT / folder).rglob("*.py")]


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nversion = "1.2.0"\nurls = { Documentation = "https://docs.invalid/" }\n'
    )
    (tmp_path / "CHANGELOG.md").write_text("## [1.2.0] - 2026-11-22\n")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder, *arguments):
    who = ("-c", "user.name=someone", "-c", "user.email=someone@recordpublisher.example", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder):
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--no-verify", "--message", "a state of the repository")


def replace(file, old, new):
    file.write_text(file.read_text().replace(old, new))


def test_a_repository_that_is_ready_has_no_objection(repository):
    assert list(objections(repository)) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("pyproject.toml", "docs.invalid", "recordpublisher.example", "write the public one"),
        ("CHANGELOG.md", "2026-11-22", "unreleased", "version 1.2.0 is 'unreleased'"),
        ("CHANGELOG.md", "1.2.0", "1.1.0", "no heading for version 1.2.0"),
    ],
)
def test_an_objection_names_what_to_do(repository, file, old, new, said):
    replace(repository / file, old, new)
    commit(repository)

    (objection,) = objections(repository)

    assert said in objection


def test_changed_files_and_a_taken_tag_are_objections(repository):
    git(repository, "tag", "v1.2.0")
    (repository / "new.txt").touch()

    assert [objection.split(":")[1] for objection in objections(repository)] == [
        " files are changed or new",
        " the tag v1.2.0 is taken",
    ]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_runs_targets_of_the_makefile(workflow):
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    lines = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    made = [re.sub(r"\$\{\{.*\}\}", "%", line).split()[1] for line in lines if line.startswith("make ")]

    assert lines or workflow.stem != "tests"
    assert {target for target in made if target not in TARGETS} == set()
    assert {line for line in lines if line.startswith(".ci/") and not (ROOT / line).exists()} == set()


def test_only_the_publishing_job_may_prove_who_it_is():
    jobs = yaml.safe_load((ROOT / ".github/workflows/publish.yml").read_text())["jobs"]

    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["publish"]
    assert not any("run" in step for step in jobs["publish"]["steps"])


def folders_of(marker):
    """What the recipes name that run the tests of a marker."""
    lines = [line for line in RECIPES if re.search(rf'-m "?{marker}\b', line)]
    return [path for line in lines for path in re.findall(r"(?:tests|research)/[\w/.]+", line)]


@pytest.mark.parametrize("marker", VARIABLES["LONG"].split(" or "))
def test_a_target_runs_every_test_of_its_marker(marker):
    marked = [file.relative_to(ROOT) for file in SOURCES if re.search(rf"\bmark\.{marker}\b", file.read_text())]
    folders = [ROOT / folder for folder in folders_of(marker)]

    assert marked, marker
    assert folders, marker
    assert [str(file) for file in marked if not any((ROOT / file).is_relative_to(folder) for folder in folders)] == []
