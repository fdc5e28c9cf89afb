"""The subtasks of one generation of a job, and the rules by which the global watermark rises (W6).

The group has no clock and no sockets: its caller passes the time. The in-process tracker, the TCP tracker and the simulation use it.
"""

import logging
from collections.abc import Iterable, Iterator

from ..min_heap import IndexedMinHeap
from ..watermark_functions import raised
from .active_minimum import ActiveMinimum
from .subtask_liveness import GroupTimeouts, SubtaskLiveness
from .watermark_tracker import WITHDRAWN_PREFIX, SubtaskStatus

log = logging.getLogger("recordpublisher.tracker")

MAX_FINISHED_CHARACTERS = 8 * 2**20
"""Total length of the keys of finished shards that one generation keeps: a few hundred thousand shards."""


class FinishedShards:
    """The keys (`Shard.key`) of shards whose end is checkpointed (S2), and the subtask that announced each.

    The log has one warning if some keys do not fit.
    """

    def __init__(self) -> None:
        self._subtask_of: dict[str, int] = {}
        self._keys_of: dict[int, set[str]] = {}
        self._free_characters = MAX_FINISHED_CHARACTERS
        self._has_warned = False

    def __contains__(self, shard: str) -> bool:
        return shard in self._subtask_of

    def __iter__(self) -> Iterator[str]:
        return iter(self._subtask_of)

    def subtask_of(self, shard: str) -> int | None:
        """Return the subtask that announced the shard, or None if none did."""
        return self._subtask_of.get(shard)

    def add(self, shards: Iterable[str], subtask: int = 0) -> None:
        """Add the shards that a subtask announces, as far as they fit, and remove those that it withdraws."""
        for shard in shards:
            if shard.startswith(WITHDRAWN_PREFIX):
                self.withdraw([shard.removeprefix(WITHDRAWN_PREFIX)], subtask)
                continue
            before = self._subtask_of.get(shard)
            if before is None and len(shard) > self._free_characters:
                self._warn_once(shard)
                continue
            if before is None:
                self._free_characters -= len(shard)
            else:
                self._keys_of[before].discard(shard)
            self._subtask_of[shard] = subtask
            self._keys_of.setdefault(subtask, set()).add(shard)

    def _warn_once(self, shard: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "the keys of %d finished shards fill their limit of %d characters: "
                "the end of %r is not passed on to other subtasks, nor are later ones",
                *(len(self._subtask_of), MAX_FINISHED_CHARACTERS, shard),
            )

    def withdraw(self, shards: Iterable[str], subtask: int = 0) -> None:
        """Forget shards that this subtask has announced.

        A shard that another subtask has announced since then stays, because it belongs to a new stream.
        """
        for shard in shards:
            if self._subtask_of.get(shard) == subtask:
                del self._subtask_of[shard]
                self._keys_of[subtask].discard(shard)
                self._free_characters += len(shard)

    def forget(self, subtask: int) -> None:
        """Forget everything that a subtask announced."""
        for shard in self._keys_of.pop(subtask, ()):
            del self._subtask_of[shard]
            self._free_characters += len(shard)


class WatermarkGroup:
    """Owns the global watermark of a generation, the subtasks' watermarks, their liveness, and the finished shards.

    The global watermark is the minimum over ACTIVE subtasks and never falls. An expected subtask that has not joined keeps it from rising
    until the start-up timeout, and a silent subtask until the heartbeat timeout. After that the subtask does not count until it reports
    again.
    """

    def __init__(self, parallelism: int, timeouts: GroupTimeouts, now: float) -> None:
        self.parallelism = parallelism
        self.global_watermark: int | None = None
        """The global watermark in epoch ms; None before one is known."""
        self.finished_shards = FinishedShards()
        self.liveness = SubtaskLiveness(timeouts, now)
        self._watermarks: ActiveMinimum[int] = ActiveMinimum()
        self._negated_maxima: IndexedMinHeap[int] = IndexedMinHeap()
        self._has_reports = False
        for subtask in range(parallelism):
            self.liveness.expect(subtask, now)
            self._watermarks.set(subtask, True, None)

    @property
    def lowest_subtask(self) -> int | None:
        """The subtask that keeps the global watermark from rising (W10): one without a watermark, or else the one with the lowest."""
        return self._watermarks.lowest_key()

    @property
    def max_shard_watermark(self) -> int | None:
        """The highest watermark of any active shard (epoch ms). Stragglers are measured against it (W12)."""
        lowest = self._negated_maxima.lowest()
        return None if lowest is None else -int(lowest[0])

    def subtasks_below(self, watermark: int, count: int) -> list[int]:
        """Return the subtasks among the `count` lowest ones whose watermark is below `watermark`."""
        return self._watermarks.keys_below(watermark, count)

    def join(self, subtask: int, now: float) -> None:
        """Register a subtask that joined and has not reported. Until it reports, the global watermark cannot rise."""
        self.liveness.record_heartbeat(subtask, now)
        self._watermarks.set(subtask, True, None)

    def start_at(self, watermark: int | None) -> None:
        """Begin the generation at the lowest watermark that its first subtask restored. The starts of other subtasks change nothing."""
        if self.global_watermark is None and not self._has_reports:
            self.global_watermark = watermark

    def raise_to(self, watermark: int | None) -> None:
        """Raise the global watermark to `watermark` if that is higher. A restarted tracker takes it over from its subtasks."""
        self.global_watermark = raised(self.global_watermark, watermark)

    def report(
        self,
        subtask: int,
        status: SubtaskStatus,
        watermark: int | None,
        now: float,
        max_shard_watermark: int | None = None,
    ) -> None:
        """Register a subtask's status and watermark, and the highest watermark of its shards (W12)."""
        self.liveness.record_heartbeat(subtask, now)
        self._has_reports = True
        if status is SubtaskStatus.LEFT:
            self.liveness.record_leave(subtask)
        self._watermarks.set(subtask, status is SubtaskStatus.ACTIVE, watermark)
        self._negated_maxima.set(subtask, None if max_shard_watermark is None else -max_shard_watermark)
        self._advance()

    def expire(self, now: float) -> list[int]:
        """Exclude the subtasks that were silent for too long, and return them.

        Call this before a decision, and several times in each timeout.
        """
        silent = self.liveness.expire(now)
        if silent:
            for subtask in silent:
                self._watermarks.forget(subtask)
                self._negated_maxima.set(subtask, None)
            self._advance()
        return silent

    def _advance(self) -> None:
        """Raise the global watermark to the minimum.

        Subtasks that have not joined count as the lowest, and so do active ones without a watermark.
        """
        self.raise_to(self._watermarks.status()[1])
