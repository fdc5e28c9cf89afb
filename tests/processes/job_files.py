"""Starts jobs from properties files with the real command, each in a process of its own."""

import os
import signal
from pathlib import Path

from processes.command_line import process_environment
from processes.forked.command import ForkedCommand


def job_file(folder: Path, properties: dict[str, object], name: str = "job.properties") -> Path:
    """Write a properties file."""
    path = folder / name
    lines = (f"{key} = {str(value).replace(chr(92), chr(92) * 2)}" for key, value in properties.items())
    path.write_text("\n".join(lines) + "\n")
    return path


def start_job(job: Path, *options: str, stdout: Path | None = None, path: Path | None = None) -> ForkedCommand:
    """Start `recordpublisher run`; its stderr is appended to the job's `.err`, modules are searched in `path` first."""
    with (
        job.with_suffix(".err").open("a") as err,
        (stdout or Path(os.devnull)).open("w") as out,
        Path(os.devnull).open() as nothing,
    ):
        return ForkedCommand(
            "run",
            str(job),
            *options,
            environment=process_environment(path),
            streams=(nothing.fileno(), out.fileno(), err.fileno()),
            start_new_session=True,
        )


def children_of(pid: int) -> list[int]:
    """The child processes of a process."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def end(process: ForkedCommand, number: int = signal.SIGTERM, seconds: float = 60) -> int:
    """Send a signal and wait; returns the exit code."""
    process.send_signal(number)
    return process.wait(timeout=seconds)
