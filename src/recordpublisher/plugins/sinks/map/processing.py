"""Processing: calls the handler with one record at a time, or with lists of them. JobPermission: whether it may be called now."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import SinkError

from .ordering import ReadyRecords
from .outcomes import Outcomes
from .settings import MapSettings
from .unhandled_record import UnhandledRecord

_POLL_SECONDS = 0.1


class JobPermission:
    """Whether the job may write now (E4), so that a handler may be called. Owns the timer of the next question, while the answer is no."""

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


class Processing:
    """Takes what is ready and calls the handler with it. `on_taken` is called when a list was taken."""

    def __init__(
        self,
        call: Callable[[UnhandledRecord, Any], Awaitable[Any]],
        settings: MapSettings,
        ready: ReadyRecords,
        outcomes: Outcomes,
        clock: Clock,
        on_taken: Callable[[], None],
        permission: JobPermission,
    ) -> None:
        self._call = call
        self._permission = permission
        self._settings = settings
        self._ready = ready
        self._outcomes = outcomes
        self._clock = clock
        self._on_taken = on_taken

    @property
    def handle_next(self) -> Callable[[], Awaitable[None]]:
        """Takes and handles what is ready."""
        return self._handle_record if self._settings.batch_size == 1 else self._handle_batch

    async def _handle_record(self) -> None:
        item = self._ready.queue.popleft()
        item.pending.begin(item.index)
        if self._settings.max_age is not None and self._is_too_old(item):
            self._outcomes.expired(item)
        else:
            try:
                await self._call(item, item.record)
            except Exception as error:
                self._outcomes.failed([item], error)
                return
            self._outcomes.succeeded(item)
        if item.key_queue is not None:
            self._ready.finish(item.key_queue)

    async def _handle_batch(self) -> None:
        taken = self._ready.take(self._settings.batch_size)
        self._on_taken()
        for item in taken:
            item.pending.begin(item.index)
        old = {id(item) for item in taken if self._settings.max_age is not None and self._is_too_old(item)}
        errors: dict[int, Exception] = {}
        await self._handle_list([item for item in taken if id(item) not in old], errors)
        for group in _by_key(taken):
            self._finish_group(group, old, errors)

    def _finish_group(self, group: Sequence[UnhandledRecord], old: set[int], errors: dict[int, Exception]) -> None:
        """Records of one key: those behind one that failed are handled again after it, so that the order holds."""
        for index, item in enumerate(group):
            if id(item) in old:
                self._outcomes.expired(item)
            elif id(item) in errors:
                self._outcomes.failed(group[index:], errors[id(item)])
                return
            else:
                self._outcomes.succeeded(item)
        if group[0].key_queue is not None:
            self._ready.finish(group[0].key_queue)

    async def _handle_list(self, items: list[UnhandledRecord], errors: dict[int, Exception]) -> None:
        """Call the handler with these; if it raises, with each half, until the record that fails stands alone."""
        if not items:
            return
        try:
            returned = await self._call(items[0], [item.record for item in items])
            for item in _failed_items(items, returned):
                errors[id(item)] = SinkError("the handler returned it as failed")
        except Exception as error:
            if len(items) == 1:
                errors[id(items[0])] = error
                return
            middle = len(items) // 2
            await self._handle_list(await self._permission.wait(items[:middle]), errors)
            failed = {
                id(item.key_queue) for item in items[:middle] if id(item) in errors and item.key_queue is not None
            }
            others = [item for item in items[middle:] if id(item.key_queue) not in failed]
            await self._handle_list(await self._permission.wait(others), errors)

    def _is_too_old(self, item: UnhandledRecord) -> bool:
        max_age = self._settings.max_age
        return max_age is not None and self._clock.now_ms() - item.record.arrival_millis > max_age * 1000


def _by_key(items: Iterable[UnhandledRecord]) -> list[list[UnhandledRecord]]:
    """The records of each key, in order; a record without a key stands alone."""
    groups: dict[int, list[UnhandledRecord]] = {}
    for item in items:
        groups.setdefault(id(item if item.key_queue is None else item.key_queue), []).append(item)
    return list(groups.values())


def _failed_items(items: Sequence[UnhandledRecord], returned: Any) -> list[UnhandledRecord]:
    """The items whose records, or their values, the handler has returned. Raises: SinkError for anything else."""
    if returned is None or (isinstance(returned, int) and not returned):  # False and 0, too: nothing has failed
        return []
    by_object: dict[int, list[UnhandledRecord]] = {}
    for item in items:
        by_object.setdefault(id(item.record), []).append(item)
        by_object.setdefault(id(item.record.value), []).append(item)  # two records may have one value, such as 0
    try:
        failed = {id(each) for each in islice(returned, len(items) + 1)}
        return [item for each in failed for item in by_object[each]]
    except (KeyError, TypeError):
        raise SinkError(
            f"the handler may return failed records of its list, or nothing; it returned {_shown(returned)}"
        ) from None


def _shown(returned: Any) -> str:
    try:
        return f"{returned!r:.200}"
    except Exception:
        return f"an object of {type(returned).__name__}"
