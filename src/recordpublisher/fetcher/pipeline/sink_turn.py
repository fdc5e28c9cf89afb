"""Lets one call of a sink run at a time, and lets no checkpoint cover records that the sink may have lost with an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from recordpublisher.publishers.errors import FencedError, StoreUnavailableError


class SinkTurn:
    """Owns the lock around every call of a sink, and the error with which the sink may have lost records.

    - `lock`: held during a call. The emitter takes it directly for each write and calls `fail` on an error, which costs less than
      `between_writes`.
    - `error`: the error of the sink; None if no call has raised, or after `trust`.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.error: Exception | None = None
        self._times_trusted = 0

    @asynccontextmanager
    async def between_writes(self) -> AsyncIterator[None]:
        """Return a context manager whose block is the only user of the sink, for example to flush it.

        Raises: the error of an earlier call of the sink, until `trust` is called. Without that error, a flush could succeed although the
        sink has lost records with the failed call.
        """
        async with self.lock:
            if self.error is not None:
                raise self.error
            with self.noting_errors():
                yield

    @contextmanager
    def noting_errors(self) -> Iterator[None]:
        """Remember an error of the block, which calls the sink while the lock is held."""
        trusted = self._times_trusted
        try:
            yield
        except (FencedError, StoreUnavailableError):
            raise  # A checkpoint that was not stored has lost nothing.
        except Exception as error:
            if trusted == self._times_trusted:
                self.fail(error)
            raise

    def fail(self, error: Exception) -> None:
        """Remember the error of a call: the sink may have lost what it had not made durable."""
        self.error = error

    def allow_flush(self) -> None:
        """Let the sink be flushed again although a call has raised.

        Called when the sink reports that nothing was lost, or when no position covers what may have been lost.
        """
        self.error = None
        self._times_trusted += 1
