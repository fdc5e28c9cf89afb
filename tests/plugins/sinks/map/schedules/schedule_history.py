"""What random schedules of MapSink are about: the records of each shard, and what has happened to them over all lives of the job."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing import VirtualClock
from recordpublisher.testing.virtual_time import EPOCH_MS

STREAM = "orders"
PARENTS = {"a": (), "b": (), "c": ("a",), "d": ("a",), "e": ("b", "c")}
"""Shard a is split into c and d, then b and c are merged into e."""


def shards_of_keys(chance: random.Random) -> dict[str, list[str]]:
    """For each key the shards that it goes through."""
    paths = [["a", "c", "e"], ["a", "d"], ["b", "e"]]
    return {f"key-{number}": chance.choice(paths) for number in range(chance.randint(1, 5))}


@dataclass
class History:
    """What has happened, over all lives of the job."""

    ordering: str
    records: dict[str, list[RecordBatch]]
    options: dict
    arrivals: dict[str, float] = field(default_factory=dict)
    """When each record arrived (epoch seconds)."""
    order: dict[str, list[str]] = field(default_factory=dict)
    """The sequence numbers of each key (PER_KEY) or shard (PER_SHARD), in order."""
    before: dict[str, list[str]] = field(default_factory=dict)
    """The records that must be handled before each one."""
    done: set[str] = field(default_factory=set)
    running: dict[str, int] = field(default_factory=dict)
    group: dict[str, str | None] = field(default_factory=dict)
    calls: int = 0
    tried: Counter[str] = field(default_factory=Counter)
    """How often handlers have begun with each record in this life."""
    passed_over: set[str] = field(default_factory=set)
    """Records before a stored position that were too old, or skipped."""
    violations: list[str] = field(default_factory=list)
    """What a handler saw; an error raised there would be an error of the handler."""

    def begin(self, numbers: list[str]) -> None:
        """A handler begins with these records."""
        self.calls += 1
        together: set[str] = set()
        for number in numbers:
            missing = [each for each in self.before[number] if each not in self.done and each not in together]
            if missing := [each for each in missing if not self.may_pass_over(each)]:
                self.violations.append(f"{number} is handled before {missing}")
            if self.options["batch_size"] == 1 and self.is_too_old(number):
                self.violations.append(f"{number} is handled and too old")
            together.add(number)
        self.tried.update(together)
        for group in {self.group[number] for number in numbers} - {None}:
            if self.running.get(group):
                self.violations.append(f"two records of {group} are handled at once")
            self.running[group] = 1

    def end(self, numbers: list[str]) -> None:
        """The handler has returned, or raised."""
        for group in {self.group[number] for number in numbers} - {None}:
            self.running[group] = 0

    def numbers(self, shard: str) -> list[str]:
        """The sequence numbers of a shard, in order."""
        return [record.sequence_number for batch in self.records[shard] for record in batch.records]

    def next_batch(self, shard: str, count: int) -> RecordBatch:
        """What is read next when `count` records of a shard are: the rest of a batch, or a whole one."""
        for batch in self.records[shard]:
            if count < len(batch):
                return batch.slice(count, len(batch))
            count -= len(batch)
        raise IndexError(shard)

    def is_too_old(self, number: str) -> bool:
        """Whether the record is older than `max_age` now."""
        max_age = self.options["max_age"]
        return max_age is not None and VirtualClock().now_ms() / 1000 - self.arrivals[number] > max_age

    def may_pass_over(self, number: str) -> bool:
        """Whether the record may be left unhandled: it is too old, or was tried in vain; then the next of its key follows."""
        gives_up = self.options["on_failure"] != "FAIL" and self.tried[number] > self.options["retries"]
        return number in self.passed_over or gives_up or self.is_too_old(number)

    def end_of_life(self) -> None:
        """All handlers were cancelled."""
        self.running.clear()
        self.tried.clear()


def history_of(chance: random.Random, options: dict) -> History:
    """Batches for each shard, with sequence numbers that are unique in the stream."""
    keys = shards_of_keys(chance)
    count = 0
    records: dict[str, list[RecordBatch]] = {}
    ordering = options["ordering"]
    history = History(ordering, records, options)
    last: dict[str, list[str]] = {}
    for shard_id in PARENTS:
        records[shard_id] = []
        here = [key for key, path in keys.items() if shard_id in path]
        for _ in range(chance.randint(0, 4)):
            taken = []
            for _ in range(chance.randint(1, 6)):
                key = chance.choice([*here, None]) if ordering != "PER_SHARD" or here else "any"
                count += 1
                number = str(count)
                history.arrivals[number] = arrival = EPOCH_MS / 1000 + chance.choice([0, 0, 300, 100_000])
                taken.append(UserRecord(b"x", number, arrival, key))
                group = {"NONE": None, "PER_KEY": key, "PER_SHARD": shard_id}[ordering]
                history.group[number] = group
                if ordering == "PER_SHARD":
                    lineage = ancestors(shard_id)
                    before = [each for shard in lineage for each in last.get(shard, [])] + last.get(shard_id, [])
                    last.setdefault(shard_id, []).append(number)
                else:
                    before = list(last.get(group, [])) if group is not None else []
                    if group is not None:
                        last.setdefault(group, []).append(number)
                history.before[number] = before
            shard = Shard(STREAM, shard_id, PARENTS[shard_id])
            end = SequenceNumber(taken[-1].sequence_number)
            records[shard_id].append(
                RecordBatch(shard, taken, read_position=end, raw_count=len(taken), raw_bytes=len(taken))
            )
    return history


def ancestors(shard_id: str) -> set[str]:
    """All ancestors of a shard."""
    return {each for parent in PARENTS[shard_id] for each in (parent, *ancestors(parent))}
