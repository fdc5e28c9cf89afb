"""Runs examples of the commands' help in this process, each against an endpoint of its own; stdin has them as a JSON list.

For each it prints a line: exit code, stdout and stderr as a JSON list.
"""

import io
import json
import os
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout

from recordpublisher.cli.app import app
from recordpublisher.local import serve_in_thread


def run(example: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of an example. The stream `orders` has two shards and ten records."""
    out, errors = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with serve_in_thread(streams={"orders": 2}) as served:
        for number in range(10):
            served.call(served.endpoint.stream("orders").put, b'{"status":"failed"}', str(number))
        os.environ.update(AWS_ENDPOINT_URL=served.url, AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret")
        with redirect_stdout(out), redirect_stderr(errors):
            code = exit_code_of(shlex.split(example)[1:])
    return code, out.buffer.getvalue().decode(), errors.buffer.getvalue().decode()


def exit_code_of(arguments: list[str]) -> int:
    try:
        app(arguments, prog_name="recordpublisher")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    for given in json.load(sys.stdin):
        print(json.dumps(run(given)), flush=True)
