"""`recordpublisher run --reload`: runs the job as a process, and starts it again when a file of the current folder changes."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

log = logging.getLogger("recordpublisher.run")
WATCHED = (".py", ".properties")
POLL_SECONDS = 0.3
HANGUP_SECONDS = 5.0
"""How long a job may drain after its terminal was closed (seconds)."""


def run_reloading(arguments: Sequence[str]) -> int:
    """Run `recordpublisher ARGUMENTS`, and start it again whenever a watched file changes.

    Return the exit code when the command has ended without an error, or after a signal to this process. After an error, the next
    start waits for a changed file. A job that stores no positions gets a temporary state store, so that each start continues where the
    last one stopped.
    """
    signals: list[int] = []
    running: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: object) -> None:
        """Remember the signal. After the first one no file is watched, and the job drains. A further one ends the job at once."""
        if signals and running and running[-1].poll() is None:
            running[-1].terminate()
        signals.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    with TemporaryDirectory(prefix="recordpublisher-") as state:
        command = [sys.executable, "-m", "recordpublisher", *arguments, "--default-state", f"{state}/state"]
        while True:
            files = _watched_files()
            process = subprocess.Popen(command, start_new_session=True)  # This process passes signals on to the job.
            running.append(process)
            while process.poll() is None and not signals and _watched_files() == files:
                time.sleep(POLL_SECONDS)
            has_ended = process.poll() is not None
            code = _end(process, is_left=signal.SIGHUP in signals)
            if signals or (has_ended and not code):
                return code
            if has_ended:
                log.warning("the job has failed, and is started again when a file changes")
            while not signals and _watched_files() == files:
                time.sleep(POLL_SECONDS)
            if signals:
                return code
            log.info("a file has changed: the job is started again")


def _end(process: subprocess.Popen[bytes], *, is_left: bool) -> int:
    """Drain the job and return its exit code.

    `is_left`: whether the terminal was closed. Then the user can no longer end a long drain, so it ends after `HANGUP_SECONDS`.
    """
    process.terminate()
    if is_left:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(HANGUP_SECONDS)
        process.terminate()
    return process.wait()


def _watched_files() -> dict[str, int]:
    """Return when each watched file of this folder and its subfolders was written (ns).

    Hidden folders and virtual environments are left out.
    """
    found: dict[str, int] = {}
    for folder, names, files in os.walk("."):
        names[:] = [name for name in names if name[0] != "." and not Path(folder, name, "pyvenv.cfg").exists()]
        for path in (os.path.join(folder, file) for file in files if file.endswith(WATCHED)):
            with contextlib.suppress(FileNotFoundError):  # An editor may just replace the old file by a new one.
                found[path] = os.stat(path).st_mtime_ns
    return found
