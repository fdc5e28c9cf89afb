"""What `make release` objects to, and that workflows run commands there are."""

import re
import runpy
import subprocess

import pytest
import yaml

from processes.command_line import ROOT

objections = runpy.run_path(str(ROOT / ".ci/release_checks.py"))["objections"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][\w%.-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


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
