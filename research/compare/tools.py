"""What the tests of clients in other languages share: running their tools, and a missing tool."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 600


def run(*command, **options):
    """The output of a command that succeeds."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def require(tool):
    """Skip the test without the tool; fail it in CI."""
    if shutil.which(tool) is None:
        assert os.environ.get("CI") != "true", f"{tool} is missing"
        pytest.skip(f"{tool} is missing")


def copied(name, folder):
    """A copy of a client's sources, to build in."""
    return shutil.copytree(HERE / name, folder / name)


def java_command(folder, source):
    """Runs a source file with the libraries of the folder's pom.xml."""
    return ["java", "-cp", _classpath(folder), str(folder / source)]


def compiled(folder, *sources):
    """Runs the last of the source files, compiled before: for libraries that load the classes of the program by name."""
    classpath = _classpath(folder)
    run("javac", "-nowarn", "-cp", classpath, "-d", str(folder), *(str(folder / source) for source in sources))
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.util")]
    return ["java", *opened, "-cp", f"{folder}:{classpath}", sources[-1].removesuffix(".java")]


def _classpath(folder):
    run("mvn", "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={folder / 'classpath'}", cwd=folder)
    return (folder / "classpath").read_text()
