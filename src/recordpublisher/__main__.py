"""`python -m recordpublisher` and the `recordpublisher` command."""

import logging
import os
import sys
import threading
import time
from importlib.util import find_spec

from .install_commands import install_command

LEAVE_SECONDS = 10.0


def main() -> None:
    """Run the command line and exit with a code: 0 for success, 1 for a failure, 2 for a bad configuration, 3 for an alarm."""
    if find_spec("typer") is None:
        sys.stderr.write(f"recordpublisher: the command line needs the extra 'cli': {install_command('cli')}\n")
        sys.exit(2)
    open_null_for_closed_streams()
    from .cli.app import app

    try:
        app(prog_name="recordpublisher")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
        leave_tasks_behind(code)
        leave_threads_behind(code)
        raise


def leave_tasks_behind(code: int) -> None:
    """End the process now with this exit code if a plugin's task is still running although it was cancelled.

    When Python exits, it would resume the task's code once more, and that code may never return.
    """
    user_code = sys.modules.get("recordpublisher.publishers.user_code")
    if user_code is not None and user_code.LEFT_BEHIND:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def open_null_for_closed_streams() -> None:
    """Open the null device for each standard stream that the caller has closed, for example with `>&-` in a shell.

    Otherwise the next file that is opened could get the stream's descriptor.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def leave_threads_behind(code: int) -> None:
    """End the process with this exit code if it still runs `LEAVE_SECONDS` after the command has finished.

    When Python exits, it waits for all threads, even for one in which the user's function never returns.
    """

    def leave() -> None:
        time.sleep(LEAVE_SECONDS)
        log = logging.getLogger("recordpublisher.command")
        log.error(
            "calls of user code are still running %g s after the command has finished: the process exits without waiting for them",
            LEAVE_SECONDS,
        )
        os._exit(code)

    threading.Thread(target=leave, name="recordpublisher-end", daemon=True).start()


if __name__ == "__main__":
    main()
