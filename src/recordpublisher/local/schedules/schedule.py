"""Reads schedules from TOML files, plays them, and judges what the client has read."""

from __future__ import annotations

import asyncio
import re
import time
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from recordpublisher.publishers.errors import ConfigurationError

from ..faults import parse_rules
from ..server import LocalKinesis
from ..stream import Stream, merge, split

BUILT_IN_SCHEDULES = {file.stem: file for file in sorted(Path(__file__).parent.glob("*.toml"))}
"""The schedules in this package, by name."""
TICK_SECONDS = 0.05
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Number = Annotated[int, Meta(ge=1, le=100_000)]

_LINE = re.compile(r"(?:\S+ )?(?P<number>\d{1,9}) (?P<put>\d{1,12}\.\d{3})(?: (?P<seen>\d{1,12}(?:\.\d{1,9})?))?\s*")


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule: its steps, and the records that are put. Times are in seconds after the start."""

    step: list[Step]
    stream: str = "orders"
    shards: Number = 2
    keys: Number = 8
    """The number of keys. The key of record n is n modulo this number."""
    records_a_second: Number = 100
    seconds: Seconds = 40
    """How long records are put, in seconds after the start."""

    @property
    def record_count(self) -> int:
        """Number of all records: two of each key at the start, then `records_a_second` in each of the `seconds`."""
        return 2 * self.keys + int(self.seconds * self.records_a_second)


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The events at one time of a schedule: random faults that last some seconds, a reshard, or an action of the client."""

    at: Seconds
    faults: str | None = None
    seconds: Seconds = 0
    """How long the faults last (seconds). A step with faults needs a value above 0."""
    reshard: Literal["split", "merge"] | None = None
    client: Literal["restart"] | None = None
    """An action of the client. For `restart`, the program that runs the client kills it and starts it again."""


def load_schedule(name: str) -> Schedule:
    """Return the schedule with this name from this package, or the schedule in a file.

    Raises: ConfigurationError if the file cannot be read or is not a valid schedule.
    """
    try:
        schedule = msgspec.convert(tomllib.loads(BUILT_IN_SCHEDULES.get(name, Path(name)).read_text("utf-8")), Schedule)
    except (OSError, ValueError) as error:  # The errors of msgspec and tomllib are ValueErrors.
        valid = f"a TOML file with steps, or one of {', '.join(BUILT_IN_SCHEDULES)}"
        raise ConfigurationError("--schedule", name, valid, reason=str(error)) from error
    for step in schedule.step:
        parse_rules(step.faults or "", "--schedule")
        if step.faults and not step.seconds:
            reason = f"the faults at {step.at:g} s have no `seconds`, so none would happen"
            raise ConfigurationError(
                "--schedule", name, "a schedule in which each step with faults has `seconds` above 0", reason=reason
            )
    return schedule


class Player:
    """Plays a schedule: puts its records into the endpoint, and does the steps when they are due."""

    def __init__(self, endpoint: LocalKinesis, schedule: Schedule, tell: Callable[[str], None]) -> None:
        self._endpoint = endpoint
        self._schedule = schedule
        self._tell = tell
        self._put_count = 0
        ends = [(step.at + step.seconds, step) for step in schedule.step if step.faults]
        starts = [(step.at, step) for step in schedule.step]
        # Faults that end come before faults that begin at the same time.
        self._left = sorted([*ends, *starts], key=lambda each: each[0])
        self._faults: list[str] = []
        """The fault rules that are in force now."""
        if schedule.stream not in endpoint.account.streams():
            endpoint.create_stream(schedule.stream, schedule.shards)

    async def play(self) -> None:
        """Play the whole schedule, by the time of the event loop."""
        now = asyncio.get_running_loop().time
        began = now()
        while self.advance(now() - began):  # noqa: ASYNC110 - what is due depends on the time alone
            await asyncio.sleep(TICK_SECONDS)

    def advance(self, seconds: float) -> bool:
        """Put the records and do the steps that are due `seconds` after the start. Return whether anything is left."""
        schedule = self._schedule
        self._put(2 * schedule.keys + int(min(seconds, schedule.seconds) * schedule.records_a_second))
        while self._left and self._left[0][0] <= seconds:
            at, step = self._left.pop(0)
            if step.faults is not None:
                self._change_faults(at, step)
            if at == step.at:
                self._act(step)
        return bool(self._left) or seconds < schedule.seconds

    def _change_faults(self, at: float, step: Step) -> None:
        """Begin or end the faults of a step at the time `at`. The faults of other steps continue."""
        if step.faults:
            (self._faults.append if at == step.at else self._faults.remove)(step.faults)
        rules = ", ".join(self._faults)
        self._endpoint.faults.start_random(rules, seed=1)
        self._tell(f"{at:g} s: faults: {rules or 'none'}")

    def _act(self, step: Step) -> None:
        if step.reshard is not None:
            done = _reshard(self._endpoint.stream(self._schedule.stream), step.reshard)
            self._tell(f"{step.at:g} s: {done}")
        if step.client is not None:
            self._tell(f"{step.at:g} s: kill the client and start it again")

    def _put(self, count: int) -> None:
        stream = self._endpoint.stream(self._schedule.stream)
        for number in range(self._put_count, count):
            stream.put(f"{number} {time.time():.3f}".encode(), f"key-{number % self._schedule.keys}")
        self._put_count = count


def _reshard(stream: Stream, kind: str) -> str:
    """Split the first shard, or merge the first two. Return in words what was done."""
    first, *others = stream.open_shards
    if kind == "split":
        split(stream, first, (first.hash_range.start + first.hash_range.end) // 2)
    elif others:
        merge(stream, first, others[0])
    else:
        return "no merge, because the stream has only one shard"
    return kind


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """A record that a client has read, as one line of the client's output shows it.

    - `number`: the record's number.
    - `put`: when it was put (epoch seconds).
    - `at`: when the client received it (epoch seconds).
    """

    number: int
    put: float
    at: float


def seen_record_in(line: str, now: float) -> SeenRecord | None:
    """Return the record that a line of a client's output shows, or None if the line has another form.

    The form is `[WORD] NUMBER PUT [SEEN]`. SEEN is when the client saw the record; by default it is `now` (epoch seconds).
    """
    found = _LINE.fullmatch(line)
    return found and SeenRecord(int(found["number"]), float(found["put"]), float(found["seen"] or now))


@dataclass(frozen=True, slots=True)
class Score:
    """The judgement of a client: how many records were lost, repeated or out of order, and two times.

    - `slowest`: the longest time from put to seen (seconds).
    - `recovered`: time from the kill of the client to the next new record (seconds); None if no new record was read.
    """

    records: int
    lost: int
    repeated: int
    out_of_order: int
    slowest: float
    recovered: float | None


def score(records: int, lines: Iterable[SeenRecord], keys: int, began: float = -inf, killed: float = inf) -> Score:
    """Judge the records that a client has read. The records were numbered from 0 to `records` - 1 when they were put.

    - `lines`: the records in the order in which the client read them.
    - `keys`: the number of keys. The key of record n is n modulo `keys`.
    - `began`, `killed`: when the schedule began, and when the client was killed (epoch seconds).

    A record is out of order if it is first read after a record of its key with a higher number. `slowest` covers only records that were put
    after `began` and more than five seconds before `killed`.
    """
    first: dict[int, SeenRecord] = {}
    highest: dict[int, int] = {}
    count = out_of_order = 0
    for seen in lines:
        count += 1
        if seen.number in first:
            continue
        first[seen.number] = seen
        key = seen.number % keys
        out_of_order += seen.number < highest.get(key, -1)
        highest[key] = max(seen.number, highest.get(key, -1))
    delays = [seen.at - seen.put for seen in first.values() if began < seen.put < killed - 5]
    after = [seen.at - killed for seen in first.values() if seen.at > killed]
    lost = len(set(range(records)) - first.keys())
    return Score(records, lost, count - len(first), out_of_order, max(delays, default=0.0), min(after, default=None))
