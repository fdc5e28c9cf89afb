"""Coordinator: one job's group behind messages that may be lost, late, doubled or forged by the past (W6, W9a).

No clock and no sockets: whoever carries the messages hands in the time (ms that only grow).
"""

from __future__ import annotations

from ..min_heap import IndexedMinHeap
from .heartbeat_messages import Answer, Refusal, Statement
from .watermark_group import Patience, WatermarkGroup
from .watermark_tracker import SubtaskStatus

TOLD_AT_ONCE = 16
"""How many of the lowest subtasks hear which value others wait for; the rest hear it in the answers to their heartbeats."""

SHOWN = 20
"""How many subtasks that are left out an answer names."""


class Coordinator:
    """Owns the group of the newest generation, the counters of its subtasks, and who waits for which value."""

    def __init__(self, identity: int) -> None:
        self.identity = identity
        """Tells a coordinator that was restarted from the one before."""
        self.generation = 0
        self._group: WatermarkGroup | None = None
        self._counters: dict[int, int] = {}
        self._waiting: IndexedMinHeap[int] = IndexedMinHeap()
        self._needed_told: dict[int, int] = {}
        self._silent: list[int] = []
        self._is_changed = False

    @property
    def value(self) -> int | None:
        """The global watermark, epoch ms."""
        return None if self._group is None else self._group.value

    @property
    def holder(self) -> int | None:
        """The subtask that holds it."""
        return None if self._group is None else self._group.holder()

    @property
    def is_deserted(self) -> bool:
        """Whether no subtask is there."""
        return self._group is None or self._group.is_deserted()

    def take(self, said: Statement, now: float) -> Answer:
        """Hear a statement and answer it; one that is older than what was taken changes nothing."""
        self._look(now)
        refusal = self._refusal(said, now)
        group = self._group
        assert group is not None
        if refusal:
            taken = self._counters.get(said.subtask, 0)
            return Answer(self.identity, self.generation, said.counter, refusal=refusal, taken=taken)
        self._counters[said.subtask] = said.counter
        group.start_at(said.start)
        group.bring(said.value)
        group.finish(said.finished)
        group.state(said.subtask, SubtaskStatus[said.status], said.watermark, now, said.furthest)
        is_held = said.status == "ACTIVE" and _is_above(said.awaited, group.value)
        self._waiting.set(said.subtask, said.awaited if is_held else None)
        self._is_changed = True
        return self._answer(said.subtask, said.counter, tuple(key for key in said.asked if key in group.finished))

    def look(self, now: float) -> list[int]:
        """Leave out who was silent for too long; call it several times a timeout (W6). Answers who that was since the last call."""
        self._look(now)
        silent, self._silent = self._silent, []
        return silent

    def lost(self, subtask: int, counter: int) -> None:
        """The connection over which `counter` came is gone; whoever came later in its place is not meant."""
        if self._group is not None and self._counters.get(subtask) == counter:
            self._group.lost(subtask)

    def due(self) -> list[tuple[int, Answer]]:
        """What some subtasks have to hear without asking, since the last look: a batch for many statements (W9a).

        Those whose awaited value was reached hear so once; the few lowest that others wait for hear up to where.
        """
        if not self._is_changed or self._group is None:
            return []
        self._is_changed = False
        reached = self._reached()
        needed = self._needed()
        blockers = [] if needed is None else self._group.below(needed, TOLD_AT_ONCE)
        uninformed = [subtask for subtask in blockers if self._needed_told.get(subtask) != needed]
        return [(subtask, self._answer(subtask, 0)) for subtask in dict.fromkeys([*reached, *uninformed])]

    # --- inside -----------------------------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        silent = [] if self._group is None else self._group.look(now)
        self._silent += silent
        self._is_changed |= bool(silent)

    def _refusal(self, said: Statement, now: float) -> Refusal:
        """Why a statement cannot be taken ("": it can); opens a new generation for a start that finds nobody there, or another number."""
        if said.counter <= self._counters.get(said.subtask, -1):
            return "OLD"
        group, is_start = self._group, said.generation == 0
        if group is None:
            self._begin(said, said.generation or said.counter, now)
        elif said.parallelism != group.parallelism:
            if not is_start and not group.is_deserted():
                return "PARALLELISM"
            self._begin(said, max(self.generation + 1, said.generation or said.counter), now)
        elif is_start and group.has_joined(said.subtask) and group.is_deserted(but_for=said.subtask):
            self._begin(said, max(self.generation + 1, said.counter), now)
        elif not is_start and said.generation < self.generation:
            return "GENERATION"
        self.generation = max(self.generation, said.generation)
        return ""

    def _begin(self, said: Statement, generation: int, now: float) -> None:
        """A new generation forgets values, finished shards and who waits; counters stay, so that what is late is refused."""
        self.generation = generation
        self._group = WatermarkGroup(said.parallelism, Patience(said.timeout_ms, said.startup_ms), now)
        self._waiting = IndexedMinHeap()
        self._needed_told.clear()

    def _reached(self) -> list[int]:
        reached: list[int] = []
        value = self.value
        while value is not None and (lowest := self._waiting.lowest()) is not None and lowest[0] <= value:
            self._waiting.set(lowest[1], None)
            reached.append(lowest[1])
        return reached

    def _needed(self) -> int | None:
        lowest = self._waiting.lowest()
        return None if lowest is None else int(lowest[0])

    def _answer(self, subtask: int, counter: int, finished: tuple[str, ...] = ()) -> Answer:
        group, needed = self._group, self._needed()
        assert group is not None
        if needed is not None:
            self._needed_told[subtask] = needed
        return Answer(
            self.identity,
            self.generation,
            counter,
            group.value,
            needed,
            group.holder(),
            group.left_out[:SHOWN],
            finished,
            furthest=group.furthest,
        )


def _is_above(awaited: int | None, value: int | None) -> bool:
    return awaited is not None and (value is None or awaited > value)
