"""Runs examples of the commands' help in this process, each against an endpoint of its own.

Stdin has the examples as a JSON list. For each it prints a line: exit code, stdout and stderr as a JSON list.
"""

import json
import os
import shlex
import sys

from recordpublisher.local import serve_in_thread

from processes.command_line import sdk_environment
from processes.commands_in_one_process import run


def run_example(example: str) -> tuple[int, str, str]:
    """Run an example. The stream `orders` has two shards, ten records and the consumer `billing`."""
    with serve_in_thread(streams={"orders": 2}) as served:
        stream = served.endpoint.stream("orders")
        served.call(stream.consumers.register, "billing")
        for number in range(10):
            served.call(stream.put, b'{"status":"failed"}', str(number))
        os.environ.update(sdk_environment(served))
        return run(shlex.split(example)[1:])


if __name__ == "__main__":
    for given in json.load(sys.stdin):
        print(json.dumps(run_example(given)), flush=True)
