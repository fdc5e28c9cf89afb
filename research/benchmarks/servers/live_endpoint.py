"""The embedded endpoint as a separate process."""

import os
import subprocess
import sys
from contextlib import contextmanager, suppress

from benchmarks.processes import ENVIRONMENT


@contextmanager
def live_endpoint(stream, shards):
    """Its URL and its process; it ends with the block."""
    command = [sys.executable, "-m", "recordpublisher", "local", "--port", "0", "--stream", f"{stream}:{shards}"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT
    ) as process:
        try:
            yield process.stdout.readline().split()[-1], process
        finally:
            process.terminate()


def shield(*processes):
    """Give processes priority over everything else on this machine, if that is allowed, so that only their own time is measured."""
    for process in processes:
        with suppress(PermissionError):
            os.sched_setscheduler(process.pid, os.SCHED_FIFO, os.sched_param(10))
