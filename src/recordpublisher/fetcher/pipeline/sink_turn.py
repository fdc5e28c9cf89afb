"""Lets one call of a sink run at a time, and lets no checkpoint cover records that the sink may have lost with an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from recordpublisher.publishers.errors import FencedError, StoreUnavailableError


class SinkTurn:
    """Owns the lock around every call of a sink, and the error with which the sink may have lost records.

    - `lock`: held during a write. Its block calls `fail` with an error of the sink, because a context manager for each batch costs
      more than the lock.
    - `error`: the error of the sink; None if no call has raised, or after `trust`.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.error: Exception | None = None
        self._times_trusted = 0

    @asynccontextmanager
    async def between_writes(self) -> AsyncIterator[None]:
        """Let no other call of the sink be in progress or begin during the block, which may flush it.

        Raises: the error of the sink if an earlier call has raised, until `trust` is called. A flush that waited for its turn may succeed
        without the records that the sink has lost with the error.
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

        Called when the sink says that it has lost nothing, and when nothing that it may have lost counts as written.
        """
        self.error = None
        self._times_trusted += 1
