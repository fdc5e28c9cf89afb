"""A process that commits a record to JSON Lines and suspends itself at one of its file operations: folder, number of the operation."""

import asyncio
import os
import signal
import sys

import recordpublisher as rp
from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink

from fakes.batches import batch
from fakes.commits.committing_sink import snapshot_at, started

OPERATIONS = {"open", "os.rename", "os.mkdir", "os.remove", "os.listdir", "os.scandir"}
STATE = snapshot_at(1)


def suspend_at(number: int) -> None:
    """The process stops before the operation of this number, from now on."""
    left = number

    def count(event: str, _: object) -> None:
        nonlocal left
        left -= event in OPERATIONS
        if left == 0:
            left = -1
            os.kill(os.getpid(), signal.SIGSTOP)

    sys.addaudithook(count)


async def main(folder: str, number: str) -> None:
    sink = JsonlSink(rp.Properties({"flink.sink.jsonl.path": folder}))
    job = await started(sink)
    await sink.write(batch(b"old"))
    suspend_at(int(number))
    try:
        await job.checkpoint(STATE)
    except rp.RecordPublisherError as error:
        print(type(error).__name__)
    else:
        print("committed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
