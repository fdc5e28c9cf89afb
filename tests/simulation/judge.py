"""The judge: sees every write, every watermark that a sink hears and every step of the global one, and says which rule was broken."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

from recordpublisher.publishers.records import RecordBatch

from .schedule import Life
from .world import World

JITTER_SECONDS = 1.5
"""How much the ways of two answers may differ: what was seen here lasted longer than what the service said."""


class BrokenRuleError(AssertionError):
    """A rule does not hold."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class Judge:
    """Owns what was written of each shard, what each sink was told, how high the global watermark stood, and the rules broken so far.

    `is_strict`: the first broken rule ends the schedule. Otherwise they are collected, as for a model that is known to break some.
    """

    def __init__(self, world: World, is_strict: bool = True) -> None:
        self.world = world
        self.broken: dict[str, str] = {}
        self.late = 0
        self.trace = 0
        """A checksum of every write in its order: the same seed gives the same."""
        self._is_strict = is_strict
        self._done: dict[str, int] = {}
        self._told: dict[int, int] = {}
        self._generation: object = None
        self._highest: int | None = None
        self._left = world.total
        self._late_of: dict[str, int] = {}
        self._life: Life | None = None
        self._excused: set[str] = set()

    @property
    def is_complete(self) -> bool:
        return self._left == 0

    @property
    def missing(self) -> dict[str, str]:
        counts = {key: (self._done.get(key, 0), len(shard.times)) for key, shard in self.world.shards.items()}
        return {
            key: f"{done} of {total}"
            for key, (done, total) in counts.items()
            if done < total and key not in self._excused
        }

    def late_of(self, key: str) -> int:
        """How many records of a shard came below the global watermark in this life and were not late in their shard."""
        return self._late_of.get(key, 0)

    def expect(self, holds: bool, rule: str, text: str) -> None:
        if holds:
            return
        if self._is_strict:
            raise BrokenRuleError(rule, text)
        self.broken.setdefault(rule, text)

    # --- what happens -------------------------------------------------------------------------------------------------------------

    def begins(self, life: Life, counts: dict[str, int]) -> None:
        """A life begins behind so many records of each shard."""
        self._life = life
        self._told.clear()
        self._late_of.clear()
        self._go_back(self.world.shards, counts)

    def restarts(self, subtask: int, owned: Iterable[str], counts: dict[str, int]) -> None:
        """One subtask begins anew behind so many records of each of its shards."""
        self._told.pop(subtask, None)
        self._go_back(owned, counts)

    def global_watermark(self, generation: object, value: int | None) -> None:
        """Where the tracker stands: within a generation it never falls."""
        if generation != self._generation:
            self._generation, self._highest = generation, None
        highest = self._highest
        self.expect(
            highest is None or (value is not None and value >= highest), "W6", f"it fell from {highest} to {value}"
        )
        self._highest = value if highest is None or (value is not None and value > highest) else highest

    def writes(self, batch: RecordBatch, value: int | None) -> None:
        """A sink is given a batch while its subtask knows `value` as the global watermark."""
        life, world, key = self._life, self.world, batch.shard.key
        assert life is not None
        size, done = world.plan.aggregate, self._done.get(key, 0)
        indexes = [int(each.sequence_number) * size + max(each.sub_sequence_number, 0) for each in batch.records]
        self.expect(indexes == list(range(done, done + len(batch))), "S1", f"{key}: {done} were written, now {indexes}")
        for parent in world.parents(key):
            whole = self._done.get(parent, 0) == len(world[parent].times)
            self.expect(whole, "S2", f"{key} was written before its parent {parent}")
        last = indexes[-1] + 1
        self._judge_lateness(key, indexes, value, life)
        self.trace = zlib.crc32(f"{key} {done} {last} {value}".encode(), self.trace)
        if key not in self._excused:
            self._left += done - last
        self._done[key] = last

    def gates(self, batch: RecordBatch, value: int | None, lookahead: int | None) -> None:
        """A batch passes the gate while its subtask knows `value` as the global watermark."""
        key, top = batch.shard.key, max(batch.watermarks or ())
        if lookahead is not None:
            self.expect(value is not None, "W8", f"{key} was written before there was a global watermark")
            ceiling = (value or 0) + lookahead
            self.expect(value is None or top <= ceiling, "W8", f"{key} at {top}, above {value} + {lookahead}")

    def bounds(self, watermark: int, value: int | None) -> None:
        """A sink hears a watermark while its subtask knows `value` as the global one."""
        self.expect(value is not None and watermark <= value, "W1", f"{watermark} is above the global {value}")

    def told(self, subtask: int, watermark: int, entries: Iterable[Any]) -> None:
        """A sink hears a watermark."""
        before = self._told.get(subtask)
        self.expect(
            before is None or watermark > before, "W1", f"the sink's watermark fell from {before} to {watermark}"
        )
        self._told[subtask] = watermark
        for entry in entries:
            if entry.is_active:
                emitted = entry.state.watermark
                self.expect(
                    emitted is not None and watermark <= emitted, "W1", f"{watermark}, {entry.key} at {emitted}"
                )

    def is_idle(self, key: str, quiet: tuple[float, float] | None, interval_ms: int, woke_at: float) -> None:
        """A subtask says that a shard is idle; `quiet` is when the service began to say so, and when it last did."""
        if quiet is None:
            return  # a record is on its way, from after the last answer that arrived
        seconds, last = quiet[1] - quiet[0], quiet[1]
        self.expect(seconds >= interval_ms / 1000 - JITTER_SECONDS, "W3", f"{key} is called idle after {seconds:.1f} s")
        self.expect(
            last >= woke_at, "W3", f"{key} is called idle and was last read {woke_at - last:.1f} s before waking up"
        )

    def excuse(self, keys: Iterable[str]) -> None:
        """Nobody reads these shards any more."""
        self._excused.update(keys)
        self._count_what_is_left()

    def holds(self, queued: int, limit: int) -> None:
        """A subtask has so many bytes queued."""
        self.expect(queued <= limit, "P6", f"{queued} bytes are queued, {limit} allowed")

    # --- inside -------------------------------------------------------------------------------------------------------------------

    def _go_back(self, keys: Iterable[str], counts: dict[str, int]) -> None:
        for key in keys:
            self._done[key] = counts.get(key, 0)
        self._count_what_is_left()

    def _count_what_is_left(self) -> None:
        read = {key: shard for key, shard in self.world.shards.items() if key not in self._excused}
        self._left = sum(len(shard.times) - self._done.get(key, 0) for key, shard in read.items())

    def _judge_lateness(self, key: str, indexes: list[int], value: int | None, life: Life) -> None:
        world = self.world
        own = world.watermark(key, indexes[0])
        if value is None or (own is not None and own >= value):
            return
        for index in indexes:
            time = world[key].times[index]
            if time < value and (own is None or time >= own):
                self._late_of[key] = self._late_of.get(key, 0) + 1
                self.late += 1
                may_be = not life.is_undisturbed or key in world.merged
                self.expect(
                    may_be, "W13", f"{key}: {time} is below the global watermark {value}, its shard stood at {own}"
                )
            own = world.watermark(key, index + 1)
