"""`python -m recordpublisher` and the `recordpublisher` command."""

import logging
import os
import sys
import threading
import time
from importlib.util import find_spec

from .extras import install_command

LEAVE_SECONDS = 10.0


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 bad configuration, 3 alarm."""
    if find_spec("typer") is None:
        sys.stderr.write(f"recordpublisher: the command line needs the extra 'cli': {install_command('cli')}\n")
        sys.exit(2)
    open_closed_streams()
    from .cli.app import app

    try:
        app(prog_name="recordpublisher")
    except SystemExit as end:
        leave_threads_behind(end.code if isinstance(end.code, int) else 0)
        raise


def open_closed_streams() -> None:
    """Let nothing take the place of a standard stream that is closed, as after `>&-`: it reads nothing, and forgets what is written."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def leave_threads_behind(code: int) -> None:
    """The command is done: end the process with this exit code if it has not ended some seconds later.

    Python waits at its end for all calls in threads, also for a function of the user that never returns. A thread cannot be ended.
    """

    def leave() -> None:
        time.sleep(LEAVE_SECONDS)
        log = logging.getLogger("recordpublisher.command")
        log.error("calls of user code still run %g s after the end: they are left behind", LEAVE_SECONDS)
        os._exit(code)

    threading.Thread(target=leave, name="recordpublisher-end", daemon=True).start()


if __name__ == "__main__":
    main()
