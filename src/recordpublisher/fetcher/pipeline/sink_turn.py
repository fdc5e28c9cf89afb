"""Lets one call of a sink run at a time, and refuses checkpoints after a call in which the sink may have lost records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from recordpublisher.publishers.errors import FencedError, StoreUnavailableError


class SinkTurn:
    """Owns the lock around every call of a sink, and the error of a call in which the sink may have lost records.

    - `lock`: the lock, which is held during a call. For each write the emitter takes it directly and calls `fail` on an error. That costs
      less than `between_writes`.
    - `error`: the error of the last failed call since `allow_flush`, or None if no call has failed since.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.error: Exception | None = None
        self.times_trusted = 0
        """How often `allow_flush` was called. An error of a call that began before the last `allow_flush` no longer matters."""

    @asynccontextmanager
    async def between_writes(self) -> AsyncIterator[None]:
        """Return a context manager whose block is the only user of the sink, for example to flush it.

        Raises: the error of an earlier call of the sink, until `allow_flush` is called. Without that error, a flush could succeed
        although the sink has lost records with the failed call.
        """
        async with self.lock:
            if self.error is not None:
                raise self.error
            with self.noting_errors():
                yield

    @contextmanager
    def noting_errors(self) -> Iterator[None]:
        """Return a context manager that remembers an error of its block. The block calls the sink, and the caller holds the lock."""
        trusted = self.times_trusted
        try:
            yield
        except (FencedError, StoreUnavailableError):
            raise  # A checkpoint that was not stored has lost nothing.
        except Exception as error:
            self.fail_since(trusted, error)
            raise

    def fail(self, error: Exception) -> None:
        """Remember the error of a call. The sink may have lost the records that it had not made durable."""
        self.error = error

    def fail_since(self, times_trusted: int, error: Exception) -> None:
        """Remember the error of a call. Do nothing if `allow_flush` was called after the call began.

        `times_trusted`: the value of the attribute `times_trusted` when the call began.
        """
        if times_trusted == self.times_trusted:
            self.fail(error)

    def allow_flush(self) -> None:
        """Let the sink be flushed again although a call has raised.

        Called when the sink reports that nothing was lost, or when the records that may have been lost will be read again.
        """
        self.error = None
        self.times_trusted += 1
