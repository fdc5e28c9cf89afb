"""A reader of Arrow batches that ends the read of a stream when it is closed."""

from collections.abc import Generator, Iterable
from itertools import chain

import pyarrow as pa


class StreamReader(pa.ipc.RecordBatchStreamReader):  # type: ignore[misc] # pyarrow is not typed
    """Owns the read, and ends it when it is closed.

    `RecordBatchReader.from_batches` does not close the generator that it reads from, and a reader that is passed through the C interface
    loses the class of an error. So the batches are passed through the IPC format, in memory, which copies them once.
    """

    def __init__(self, schema: pa.Schema, batches: Generator[pa.RecordBatch, None, None]) -> None:
        self._batches = batches
        super().__init__(_Messages(schema, batches))

    def close(self) -> None:
        """Stop the read, and wait until everything is closed. Later reads find the end."""
        self._batches.close()


class _Messages:
    """A file-like object with a schema and batches in the IPC format. A read returns at most the rest of the current message."""

    closed = False

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        self._parts = chain([schema], batches)
        self._left = memoryview(b"")

    def read(self, size: int) -> memoryview:
        if not self._left:
            part = next(self._parts, None)
            self._left = memoryview(b"" if part is None else part.serialize())
        read, self._left = self._left[:size], self._left[size:]
        return read
