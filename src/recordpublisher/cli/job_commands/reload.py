"""`recordpublisher run --reload`: runs the job as a process, and starts it again when a file of the current folder has changed."""

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


def run_reloading(arguments: Sequence[str]) -> int:
    """Run `recordpublisher ARGUMENTS` again and again; returns its exit code when it has ended by itself, or by a signal to this process.

    A job without a place for its positions has one while this runs, so that it goes on where it was. After an error it waits for a change.
    """
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda given, _: signals.append(given))
    with TemporaryDirectory(prefix="recordpublisher-") as state:
        command = [sys.executable, "-m", "recordpublisher", *arguments, "--default-state", f"{state}/state"]
        while True:
            files = _watched_files()
            process = subprocess.Popen(command, start_new_session=True)  # Ctrl-C is passed on by this process
            while process.poll() is None and not signals and _watched_files() == files:
                time.sleep(POLL_SECONDS)
            has_ended = process.poll() is not None
            process.terminate()
            code = process.wait()
            if signals or (has_ended and not code):
                return code
            if has_ended:
                log.warning("waiting for a changed file")
            while not signals and _watched_files() == files:
                time.sleep(POLL_SECONDS)
            if signals:
                return code
            log.info("a file has changed: starting again")


def _watched_files() -> dict[str, int]:
    """When each file of this folder and those below it was written; without hidden folders and virtual environments."""
    found: dict[str, int] = {}
    for folder, names, files in os.walk("."):
        names[:] = [name for name in names if name[0] != "." and not Path(folder, name, "pyvenv.cfg").exists()]
        for path in (os.path.join(folder, file) for file in files if file.endswith(WATCHED)):
            with contextlib.suppress(FileNotFoundError):  # an editor puts a new file in the place of the old one
                found[path] = os.stat(path).st_mtime_ns
    return found
