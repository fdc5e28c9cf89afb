"""Where a batch read starts and ends, from `startingPosition` and `endingPosition`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import initial_position, initial_timestamp_ms
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.properties import table
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.property_types import text
from recordpublisher.publishers.records import RecordBatch

START_OPTION, END_OPTION = "startingPosition", "endingPosition"
ENDING_POSITION = text(
    "flink.spark.end",
    "`spark.read`: where a batch read ends: NOW (when the DataFrame is loaded), a time (before the first record of each shard that arrived "
    'at or after it), or JSON by shard, {"shardId-000000000000": "<sequence number>"} (before that record). Not set: NOW. '
    "Option `endingPosition`.",
    group="Spark",
    aliases=(END_OPTION,),
)
_VALID_START = 'TRIM_HORIZON, "AT_TIMESTAMP <time>", a time, or JSON by shard: {"<shard id>": "<sequence number>" or "TRIM_HORIZON"}'
_VALID_END = 'NOW, a time, or JSON by shard: {"<shard id>": "<sequence number>" or "NOW"}'


@dataclass(frozen=True, slots=True)
class EndPosition:
    """The first record that is not read: that of `sequence`, or else the first that arrived at or after `arrival_ms` (epoch ms).

    Arrival times are not ordered in a shard; what comes after the first such record is not read, whatever its arrival.
    """

    arrival_ms: int
    sequence: int | None = None

    def rows_before(self, batch: RecordBatch) -> int:
        """How many records of a batch lie before this position."""
        if not batch.records:
            return 0
        if self.sequence is not None:
            if int(batch.sequence_numbers[-1]) < self.sequence:
                return len(batch)
            return next(place for place, number in enumerate(batch.sequence_numbers) if int(number) >= self.sequence)
        if max(batch.arrival_millis) < self.arrival_ms:
            return len(batch)
        return next(place for place, arrival in enumerate(batch.arrival_millis) if arrival >= self.arrival_ms)


@dataclass(frozen=True, slots=True)
class ReadPositions:
    """The positions of a read: for every shard, or, if given by shard, for those shards alone."""

    start: StartingPosition
    end: EndPosition
    starts: Mapping[str, StartingPosition] | None = None
    ends: Mapping[str, EndPosition] | None = None

    @classmethod
    def parse(cls, properties: Properties, by_shard: str | None, now_ms: int) -> ReadPositions:
        """`by_shard` is a start in JSON; `now_ms` is what NOW means. Raises: ConfigurationError."""
        given = (properties.value(ENDING_POSITION) or "NOW").strip()
        now = EndPosition(now_ms)
        starts = None if by_shard is None else _starts(by_shard)
        ends = _ends(given, now) if given.startswith("{") else None
        if starts is not None and ends is not None and starts.keys() != ends.keys():
            reason = (
                f"only one of {START_OPTION} and {END_OPTION} names {', '.join(sorted(starts.keys() ^ ends.keys()))}"
            )
            raise ConfigurationError(END_OPTION, given, "the shards that the start names", reason=reason)
        start = StartingPosition.trim_horizon() if by_shard is not None else _start(properties)
        return cls(start, now if ends is not None else _end(given, now, properties), starts, ends)

    @property
    def shards(self) -> frozenset[str] | None:
        """The ids of the shards that are read; None for all."""
        named = self.starts if self.starts is not None else self.ends
        return None if named is None else frozenset(named)

    def of(self, shard_id: str) -> tuple[StartingPosition, EndPosition]:
        """Start and end of a shard."""
        return (self.starts or {}).get(shard_id, self.start), (self.ends or {}).get(shard_id, self.end)


def split_start(options: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """The options without a start by shard (JSON), which is returned; a time alone becomes an AT_TIMESTAMP."""
    rest = dict(options)
    key = next((key for key in rest if key.lower() == START_OPTION.lower()), None)
    value = "" if key is None else rest[key].strip()
    if key is not None and value.startswith("{"):
        del rest[key]
        return rest, value
    if key is not None and value[:1].isdigit():
        rest[key] = f"AT_TIMESTAMP {value}"
    return rest, None


def _start(properties: Properties) -> StartingPosition:
    if not properties.is_set(table.INITIAL_POSITION):
        return StartingPosition.trim_horizon()
    start = initial_position(properties)
    if start.type is PositionType.LATEST:
        raise ConfigurationError(START_OPTION, "LATEST", _VALID_START, reason="a batch read ends at the tip")
    return start


def _end(given: str, now: EndPosition, properties: Properties) -> EndPosition:
    if given.upper() in ("NOW", "LATEST"):
        return now
    time = given.partition(" ")[2].strip() if given.upper().startswith("AT_TIMESTAMP ") else given
    try:
        return EndPosition(initial_timestamp_ms(properties.merged({table.INITIAL_TIMESTAMP.key: time})))
    except ConfigurationError as error:
        raise ConfigurationError(END_OPTION, given, f"{_VALID_END}; a time is {error.valid}") from None


def _starts(given: str) -> dict[str, StartingPosition]:
    return {
        shard: StartingPosition.trim_horizon()
        if position.upper() == "TRIM_HORIZON"
        else StartingPosition(PositionType.AT_SEQUENCE_NUMBER, _sequence(START_OPTION, position, _VALID_START))
        for shard, position in _by_shard(START_OPTION, given, _VALID_START).items()
    }


def _ends(given: str, now: EndPosition) -> dict[str, EndPosition]:
    return {
        shard: now
        if position.upper() == "NOW"
        else EndPosition(now.arrival_ms, int(_sequence(END_OPTION, position, _VALID_END)))
        for shard, position in _by_shard(END_OPTION, given, _VALID_END).items()
    }


def _by_shard(option: str, given: str, valid: str) -> dict[str, str]:
    try:
        positions = json.loads(given)
    except ValueError as error:
        raise ConfigurationError(option, given, valid, reason=str(error)) from None
    if not positions or not all(isinstance(position, str) for position in positions.values()):
        raise ConfigurationError(option, given, valid)
    return dict(positions)


def _sequence(option: str, position: str, valid: str) -> str:
    if not position.isdecimal():
        raise ConfigurationError(option, position, valid)
    return position
