"""Reads schedules from TOML files, and plays them: records put at a rate, and faults and reshards at their times."""

import asyncio
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from recordpublisher.publishers.errors import ConfigurationError

from ..faults.kinds import parse_rules
from ..server import LocalKinesis
from ..streams.resharding import merge, split
from ..streams.stream import Stream

READY = {file.stem: file for file in sorted(Path(__file__).parent.glob("*.toml"))}
"""The schedules in this package, by name."""
TICK_SECONDS = 0.05
Seconds = Annotated[float, Meta(ge=0, le=86_400)]
Number = Annotated[int, Meta(ge=1, le=100_000)]


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What happens at a time: faults by rules for some seconds, a reshard, or an action of the client."""

    at: Seconds
    faults: str | None = None
    seconds: Seconds = 0
    """How long the faults last."""
    reshard: Literal["split", "merge"] | None = None
    client: Literal["restart"] | None = None
    """The program that runs the client kills it and starts it again."""


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Steps and the records that are put. Times are in seconds after the start."""

    step: list[Step]
    stream: str = "orders"
    shards: Number = 2
    keys: Number = 8
    """Record n has the key n modulo this."""
    records_a_second: Number = 100
    seconds: Seconds = 40
    """The time at which the producer ends."""

    @property
    def record_count(self) -> int:
        """Number of all records: two of each key at the start, and those put at the rate."""
        return 2 * self.keys + int(self.seconds * self.records_a_second)


def load_schedule(name: str) -> Schedule:
    """Return the ready schedule with this name, or the schedule in a file.

    Raises: ConfigurationError if the file cannot be read or is not a valid schedule.
    """
    try:
        schedule = msgspec.convert(tomllib.loads(READY.get(name, Path(name)).read_text("utf-8")), Schedule)
    except (OSError, ValueError) as error:  # msgspec's and tomllib's errors are ValueErrors
        valid = f"a TOML file with steps, or one of {', '.join(READY)}"
        raise ConfigurationError("--schedule", name, valid, reason=str(error)) from error
    for step in schedule.step:
        parse_rules(step.faults or "", "--schedule")
    return schedule


class Player:
    """Plays a schedule to the client that reads from an endpoint. Owns how many records were put, and which steps are left."""

    def __init__(self, endpoint: LocalKinesis, schedule: Schedule, tell: Callable[[str], None]) -> None:
        self._endpoint = endpoint
        self._schedule = schedule
        self._tell = tell
        self._put_count = 0
        ends = [Step(step.at + step.seconds, faults="") for step in schedule.step if step.faults]
        self._left = sorted([*schedule.step, *ends], key=lambda step: step.at)
        if schedule.stream not in endpoint.account.streams():
            endpoint.create_stream(schedule.stream, schedule.shards)

    async def play(self) -> None:
        """Play the whole schedule, in the time of the event loop."""
        now = asyncio.get_running_loop().time
        began = now()
        while self.advance(now() - began):  # noqa: ASYNC110 - what is due depends on the time alone
            await asyncio.sleep(TICK_SECONDS)

    def advance(self, seconds: float) -> bool:
        """Put the records and do the steps that are due `seconds` after the start. Return whether anything is left."""
        schedule = self._schedule
        self._put(2 * schedule.keys + int(min(seconds, schedule.seconds) * schedule.records_a_second))
        while self._left and self._left[0].at <= seconds:
            self._act(self._left.pop(0))
        return bool(self._left) or seconds < schedule.seconds

    def _act(self, step: Step) -> None:
        if step.faults is not None:
            self._endpoint.faults.start_random(step.faults, seed=1)
            self._tell(f"{step.at:g} s: faults: {step.faults or 'none'}")
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
    """Split the first shard, or merge the first two. Return what was done, in words."""
    first, *others = stream.open_shards
    if kind == "split":
        split(stream, first, (first.hash_range.start + first.hash_range.end) // 2)
    elif others:
        merge(stream, first, others[0])
    else:
        return "no merge: there is one shard"
    return kind
