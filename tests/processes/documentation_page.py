"""Runs a page of the documentation: creates its files, runs its programs and commands, and compares their output."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from processes.command_line import command, process_environment

FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w/]+\.\w+)\n")
COMMAND = [sys.executable, "-m", "recordpublisher"]
RUNNERS = {"python": [sys.executable, "-W", "error"], "recordpublisher": COMMAND}
RUNNERS["pytest"] = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "pytest_recordpublisher"]
SKIPPED = ("pip ", "make ", "recordpublisher local ")
"""Commands that other tests cover; the test serves the endpoint."""
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00")
"""Of a log line."""
INTERRUPT = "^C"
OF_SHELL = re.compile(r"^(?:[^#\n]+ \| )?recordpublisher (?!local\b).*", re.MULTILINE)
"""Commands in a block of shell code, which has no prompts and can be pasted whole; other tests cover the rest of it."""


@dataclass(frozen=True)
class Block:
    language: str
    text: str

    @property
    def file_name(self) -> str | None:
        """A block that begins with a comment `# name.py` is that file."""
        named = FILE_NAME.match(self.text)
        return named[1] if named else None


def blocks(page: Path, replacing: Mapping[str, str]) -> list[Block]:
    """The fenced blocks of a page; `replacing` replaces the page's endpoint by the test's."""
    text = page.read_text(encoding="utf-8")
    for old, new in replacing.items():
        text = text.replace(old, new)
    return [Block(language, body) for language, body in FENCED.findall(text)]


def run_page(page: Path, folder: Path, replacing: Mapping[str, str], site: Path | None = None) -> int:
    """Run a page from top to bottom in a folder; a `text` block is the output of the program above it. `site` is searched
    for modules first. Returns how many programs ran."""
    count, shown = 0, ""
    for block in blocks(page, replacing):
        if block.file_name is not None:
            (folder / block.file_name).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file_name).write_text(block.text, encoding="utf-8")
        elif block.language == "python" and "SparkSession" not in block.text:
            shown = run([*RUNNERS["python"], "-c", block.text], folder, site)
            count += 1
        elif block.language == "sh":
            for line in OF_SHELL.findall(block.text):
                shown = output_of(line, folder, site)
                count += 1
        elif block.language == "text":
            assert matches(block.text, shown), f"expected:\n{block.text}\nshown:\n{shown}"
        elif block.language == "console":
            for line, expected in steps(block.text):
                check(line, expected, folder, site)
                count += 1
    return count


def installed_package(page: Path, folder: Path, leave_out: Sequence[str] = ()) -> Path:
    """A site with the package that the files of a page make, without those to leave out."""
    package, site = folder / "package", folder / "site"
    for block in blocks(page, {}):
        if block.file_name not in (None, *leave_out):
            (package / block.file_name).parent.mkdir(parents=True, exist_ok=True)
            (package / block.file_name).write_text(block.text, encoding="utf-8")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    install = [sys.executable, "-m", "pip", "install", *options, "--target", site, package]
    subprocess.run(install, check=True, env={**os.environ, "PIP_NO_INPUT": "1"})
    return site


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Commands with the output shown below them."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        if not command.startswith(SKIPPED):
            yield command, expected


def check(line: str, expected: str, folder: Path, site: Path | None) -> None:
    """Run a command and compare; `...` stands for anything, `^C` in the output is sent after the lines before it. What stands before
    ` | ` is run by a shell, and its output given to the command."""
    before, interrupt, after = expected.partition(f"{INTERRUPT}\n")
    shown = output_of(line, folder, site, before if interrupt else None)
    assert matches(before + after, shown), f"$ {line}\nexpected:\n{expected}\nshown:\n{shown}"


def output_of(line: str, folder: Path, site: Path | None, interrupt_after: str | None = None) -> str:
    """What a command writes; with `interrupt_after` it is interrupted when it has written that."""
    source, _, last = line.rpartition(" | ")
    program, *arguments = shlex.split(last, comments=True)
    words = [*RUNNERS[program], *arguments]
    if interrupt_after is not None:
        return run_and_interrupt(words, folder, interrupt_after, site)
    given = subprocess.run(source, shell=True, capture_output=True, text=True, check=True).stdout if source else ""
    return run(words, folder, site, given)


def matches(expected: str, shown: str) -> bool:
    """Whether an output is as a page shows it, at another time."""
    return doctest.OutputChecker().check_output(TIME.sub("TIME", expected), TIME.sub("TIME", shown), doctest.ELLIPSIS)


def run(line: list[str], folder: Path, site: Path | None = None, given: str = "") -> str:
    if line[: len(COMMAND)] == COMMAND:
        done = command(*line[len(COMMAND) :], path=site, folder=folder, stdin=given, timeout=200)
    else:
        done = subprocess.run(
            line,
            cwd=folder,
            env=process_environment(site),
            input=given,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def run_and_interrupt(line: list[str], folder: Path, before: str, site: Path | None = None) -> str:
    output = folder / ".output"
    with output.open("w") as file:
        process = subprocess.Popen(line, cwd=folder, env=process_environment(site), stdout=file, stderr=file)
        try:
            deadline = time.monotonic() + 60
            while not matches(before, output.read_text()) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0, output.read_text()
        finally:
            process.kill()
    return output.read_text()
