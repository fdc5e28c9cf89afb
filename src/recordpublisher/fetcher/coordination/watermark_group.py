"""WatermarkGroup: the subtasks of one generation of a job, and the rules by which they move the global watermark (W6).

No clock and no sockets: whoever owns a group hands in the time. The in-process tracker, the TCP tracker and the simulation use this one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..min_heap import IndexedMinHeap
from .active_minimum import ActiveMinimum
from .watermark_tracker import SubtaskStatus

MOST_FINISHED_CHARACTERS = 8 * 2**20
"""Room for the names of finished shards of one generation: a few hundred thousand."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a group waits, ms: for the next word of a subtask, and for the first one (None: for ever)."""

    timeout_ms: int = 30_000
    startup_ms: int | None = 60_000


@dataclass(slots=True)
class _Member:
    heard: float
    has_spoken: bool = False
    has_left: bool = False
    is_left_out: bool = False


class WatermarkGroup:
    """Owns who counts, with which watermark, the value, and the finished shards of a generation.

    The value is the minimum over ACTIVE subtasks and never falls. An expected subtask that was not heard of yet holds it where it is,
    until the start-up timeout; one that fell silent holds it until the timeout. Then it is left out, until it speaks again.
    """

    def __init__(self, parallelism: int, patience: Patience, now: float, value: int | None = None) -> None:
        self.parallelism = parallelism
        self.value = value
        """The global watermark, epoch ms; None before any is known."""
        self.finished: set[str] = set()
        """Shards whose end is confirmed (S2), by `Shard.key`."""
        self.left_out: tuple[int, ...] = ()
        """Subtasks that do not count since nobody hears of them."""
        self._room = MOST_FINISHED_CHARACTERS
        self._patience = patience
        self._counting: ActiveMinimum[int] = ActiveMinimum()
        self._furthest: IndexedMinHeap[int] = IndexedMinHeap()
        self._members: dict[int, _Member] = {}
        self._unheard: set[int] = set()
        self._present: set[int] = set()
        self._looked = self._next_look = now
        self._has_stated = False
        for subtask in range(parallelism):
            self._expect(subtask, now)

    # --- who is there -----------------------------------------------------------------------------------------------------------

    @property
    def unheard(self) -> list[int]:
        """Expected subtasks that have not joined."""
        return sorted(self._unheard)

    @property
    def is_joined_by_all(self) -> bool:
        """Whether no subtask is waited for to join."""
        return not self._unheard

    def has_joined(self, subtask: int) -> bool:
        """Whether the subtask was ever heard of in this generation."""
        member = self._members.get(subtask)
        return member is not None and member.has_spoken

    def is_deserted(self, but_for: int | None = None) -> bool:
        """Whether nobody is there any more: all have left, fell silent or lost their connection."""
        return not self._present - {but_for}

    def holder(self) -> int | None:
        """The subtask that holds the value (W10): one without a watermark, or the one with the lowest."""
        return self._counting.holder()

    @property
    def furthest(self) -> int | None:
        """Where the furthest shard stands that somebody reads (epoch ms): shards far behind are measured against it (W12)."""
        lowest = self._furthest.lowest()
        return None if lowest is None else -int(lowest[0])

    def below(self, bound: int, count: int) -> list[int]:
        """At most `count` of the lowest subtasks whose watermark is below `bound`."""
        return self._counting.below(bound, count)

    # --- what is heard ----------------------------------------------------------------------------------------------------------

    def join(self, subtask: int, now: float) -> None:
        """A subtask is there, with nothing to say yet: it holds the value."""
        self._heard_of(subtask, now)
        self._counting.set(subtask, True, None)

    def start_at(self, watermark: int | None) -> None:
        """The lowest watermark that the first subtask restored: there the generation begins; a later start moves nothing."""
        if self.value is None and not self._has_stated:
            self.value = watermark

    def bring(self, value: int | None) -> None:
        """A value that a subtask was told before: a tracker that was restarted never goes back."""
        if value is not None and (self.value is None or value > self.value):
            self.value = value

    def state(
        self, subtask: int, status: SubtaskStatus, watermark: int | None, now: float, furthest: int | None = None
    ) -> None:
        """A subtask says where it stands, and where its furthest shard does (W12)."""
        member = self._heard_of(subtask, now)
        self._has_stated = True
        member.has_left = status is SubtaskStatus.LEFT
        if member.has_left:
            self._present.discard(subtask)
        self._counting.set(subtask, status is SubtaskStatus.ACTIVE, watermark)
        self._furthest.set(subtask, None if furthest is None else -furthest)
        self._rise()

    def still_there(self, subtask: int, now: float) -> None:
        """A subtask that joined says again what it said."""
        self._members[subtask].heard = now

    def lost(self, subtask: int) -> None:
        """A subtask's connection ended without a word: it counts until the timeout, and may be replaced."""
        self._present.discard(subtask)

    def finish(self, shards: Iterable[str]) -> None:
        """Shards whose end is in a confirmed checkpoint (S2); more than fit into the room for them are not kept."""
        for shard in shards:
            if shard not in self.finished and len(shard) <= self._room:
                self._room -= len(shard)
                self.finished.add(shard)

    # --- time -------------------------------------------------------------------------------------------------------------------

    def look(self, now: float) -> list[int]:
        """Leave out who was silent for too long, and answer who that was. Call it before a decision, and several times a timeout.

        When nobody looked for half a timeout we were suspended ourselves, and everybody gets a fresh timeout.
        """
        gap, self._looked = now - self._looked, now
        if gap > self._patience.timeout_ms / 2:
            for member in self._members.values():
                member.heard = now
            self._next_look = now
        return self._leave_out_the_silent(now) if now >= self._next_look else []

    def _leave_out_the_silent(self, now: float) -> list[int]:
        silent = [subtask for subtask, member in self._members.items() if self._deadline(member) <= now]
        for subtask in silent:
            self._members[subtask].is_left_out = True
            self._unheard.discard(subtask)
            self._present.discard(subtask)
            self._counting.forget(subtask)
            self._furthest.set(subtask, None)
        self.left_out = tuple(sorted({*self.left_out, *silent}))
        self._next_look = min(map(self._deadline, self._members.values()), default=math.inf)
        self._rise()
        return silent

    def _deadline(self, member: _Member) -> float:
        if member.has_left or member.is_left_out:
            return math.inf
        if member.has_spoken:
            return member.heard + self._patience.timeout_ms
        return math.inf if self._patience.startup_ms is None else member.heard + self._patience.startup_ms

    # --- inside -----------------------------------------------------------------------------------------------------------------

    def _expect(self, subtask: int, now: float) -> None:
        self._members[subtask] = _Member(now)
        self._unheard.add(subtask)
        self._counting.set(subtask, True, None)

    def _heard_of(self, subtask: int, now: float) -> _Member:
        if subtask not in self._members:
            self._expect(subtask, now)
        member = self._members[subtask]
        member.heard = now
        if member.is_left_out:
            self.left_out = tuple(each for each in self.left_out if each != subtask)
        if not member.has_spoken or member.is_left_out or member.has_left:
            member.has_spoken, member.is_left_out, member.has_left = True, False, False
            self._next_look = min(self._next_look, now + self._patience.timeout_ms)
            self._unheard.discard(subtask)
        self._present.add(subtask)
        return member

    def _rise(self) -> None:
        """Those who were not heard of yet count as lowest, as do active ones without a watermark."""
        self.bring(self._counting.status()[1])
