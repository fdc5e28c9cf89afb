"""`make docs` writes the site without changing an environment in which a job may run, and says where the site is."""

import os
import shutil
import subprocess

import pytest

from processes.command_line import ROOT


@pytest.fixture
def checkout(tmp_path):
    """What `make` looks at: the files that an environment is made from, and an environment as the README makes it."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").touch(mode=0o755)
    return tmp_path


def planned(folder):
    """The commands that `make docs` would run."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make", "-n", "docs"], cwd=folder, env=outside, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_an_environment_of_a_user_is_left_alone(checkout):
    commands = planned(checkout)

    assert [line for line in commands if ".venv/bin" in line] == []
    assert any(line.startswith(".venvs/docs/bin/python -m pip install") and '".[dev]"' in line for line in commands)
    assert any(line.startswith(".venvs/docs/bin/zensical build") for line in commands)


def test_the_environment_of_a_developer_is_used_and_not_installed_again(checkout):
    (checkout / ".venv/.installed").touch()
    os.utime(checkout / ".venv/.installed", (0, 0))
    commands = planned(checkout)

    assert [line for line in commands if "pip install" in line] == []
    assert any(line.startswith(".venv/bin/zensical build") for line in commands)


def test_the_last_line_says_where_the_site_is(checkout):
    assert planned(checkout)[-1] == 'echo "The site is in build/site: open build/site/index.html"'
