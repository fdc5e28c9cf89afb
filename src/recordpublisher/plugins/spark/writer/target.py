"""Whether the target stream is there, asked on the driver before there are tasks (C2)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from recordpublisher.plugins.sinks.kinesis.sending_pipeline import facts_of
from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.kinesis.ports import WritingPort

from ..python_worker import WorkerLoop
from .write_options import WriteOptions


def check_target(options: WriteOptions, loop: WorkerLoop, connect: Callable[[str], WritingPort]) -> None:
    """Once for each process and target, since Spark makes the writer anew for each batch. Targets that a column names nobody knows yet.

    Raises: StreamNotFoundError, FatalKinesisError, ConfigurationError: what every attempt of a task would only meet again.
    """
    stream = options.stream
    if stream is not None:
        key = ("target", stream, *options.of_connection)
        loop.warm(key, lambda: loop.run(look(connect(stream), stream)))


async def look(port: WritingPort, stream: str) -> bool:
    """Ask once what a task asks first, and close the port. Trouble that may pass is the tasks': an error of the driver ends the query."""
    try:
        with contextlib.suppress(TransientError):
            await facts_of(port, stream)
            await port.list_shards(stream)
    finally:
        await port.close()
    return True
