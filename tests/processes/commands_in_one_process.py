"""Runs several commands one after the other in this process: most of a command's time it would load the AWS SDK.

Stdin has the commands as a JSON list of lists of arguments. For each it prints a line: exit code, stdout and stderr as a JSON list.
"""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

from recordpublisher.cli.app import app


def run(arguments: list[str]) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of one command."""
    out, errors = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(errors):
        code = _exit_code(arguments)
    return code, out.buffer.getvalue().decode(), errors.buffer.getvalue().decode()


def _exit_code(arguments: list[str]) -> int:
    try:
        app(arguments, prog_name="recordpublisher")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    for given in json.load(sys.stdin):
        print(json.dumps(run(given)), flush=True)
