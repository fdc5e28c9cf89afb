"""JobPermission: whether the job may write now (E4), so that a handler may be called."""

import asyncio
from collections.abc import Callable, Sequence

from recordpublisher.fetcher.sink import SinkContext

from .unhandled_record import UnhandledRecord

_POLL_SECONDS = 0.1


class JobPermission:
    """Owns the timer of the next question, while the answer is no."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._may_write = SinkContext().may_write
        self._timer: asyncio.TimerHandle | None = None

    def open(self, context: SinkContext) -> None:
        """Ask this job."""
        self._may_write = context.may_write

    def is_given(self) -> bool:
        """Whether a handler may be called now. If not, `wake` is called a little later."""
        if self._may_write():
            return True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_POLL_SECONDS, self._ask_again)
        return False

    async def wait(self, items: Sequence[UnhandledRecord]) -> list[UnhandledRecord]:
        """Wait until a handler may be called. Returns the items that are still this process's: those of revoked shards are not."""
        while True:
            left = [item for item in items if not item.pending.shard.is_revoked]
            if not left or self._may_write():
                return left
            await asyncio.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Ask no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _ask_again(self) -> None:
        self._timer = None
        self._wake()
