"""Parses where a batch read starts and ends, from `startingPosition` and `endingPosition`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recordpublisher.consumer.end_position import EndPosition
from recordpublisher.fetcher.checkpoints.shard_starts import Starts, json_by_shard, position_of
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import check_end_time, initial_position, with_oldest_start
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.safe_text import few_of
from recordpublisher.publishers.shards import Shard

from .options.spark_options import END_OPTION, ENDING_POSITION, VALID_END
from .options.start_by_shard import START_OPTION, VALID_START, option_time_ms, starts_by_shard


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Where a batch read starts and ends in each shard. If starts or ends are given by shard, only the named shards are read.

    - `end`: the end of every shard that `ends` does not name.
    - `ends`: ends by shard id, or None if no end is given by shard.
    """

    starts: Starts
    end: EndPosition
    ends: Mapping[str, EndPosition] | None = None

    @classmethod
    def parse(cls, properties: Properties, streams: Sequence[str], now_ms: int) -> ReadRange:
        """Return the start and end that the properties give. `now_ms` (epoch ms) is the time that NOW means.

        Raises: ConfigurationError if a start or end is invalid, or if the starts by shard name other shards than the ends.
        """
        given = (properties.value(ENDING_POSITION) or "NOW").strip()
        now = EndPosition(now_ms)
        starts = _starts(properties, streams, now_ms)
        start, by_shard = starts.default, starts.by_shard
        ends = _ends(given, now, streams) if given.startswith("{") else None
        if by_shard and ends is not None and by_shard.keys() != ends.keys():
            reason = (
                f"only one of {START_OPTION} and {END_OPTION} names {few_of(sorted(by_shard.keys() ^ ends.keys()))}"
            )
            raise ConfigurationError(END_OPTION, given, "the shards that the start names", reason=reason)
        end = now if ends is not None else _end(given, now, properties)
        if ends is None:
            check_end_time(END_OPTION, given, end.arrival_ms, start_ms=start.timestamp_ms)
        return cls(starts, end, ends)

    @property
    def shards(self) -> frozenset[str] | None:
        """The ids of the shards that are read, or None if all shards are read."""
        named = self.starts.by_shard or self.ends
        return frozenset(named) if named else None

    def of(self, shard: Shard) -> tuple[StartingPosition, EndPosition]:
        """Return where the read of a shard starts and ends.

        Raises: ConfigurationError if the start is after a sequence number. Only queries accept such a start.
        """
        state = self.starts.of(shard)
        if state.position is not None:
            raise _only_for_queries(state.position.sequence)
        return state.start, (self.ends or {}).get(shard.shard_id, self.end)


def _starts(properties: Properties, streams: Sequence[str], now_ms: int) -> Starts:
    """Return the starts of a batch read. Raises: ConfigurationError if a start is only valid for queries."""
    by_shard = starts_by_shard(properties, streams)
    if any(state.ended or state.start.type is PositionType.LATEST for state in by_shard.values()):
        raise _only_for_queries("LATEST or SHARD_END")
    if by_shard:
        return Starts(StartingPosition.trim_horizon(), by_shard)
    start = initial_position(with_oldest_start(properties))
    if start.is_tip:
        reason = "a batch read ends at the tip, so a start there reads nothing"
        raise ConfigurationError(START_OPTION, "LATEST", VALID_START, reason=reason)
    return Starts(start.pinned_at(now_ms))


def _end(given: str, now: EndPosition, properties: Properties) -> EndPosition:
    if given.upper() in ("NOW", "LATEST"):
        return now
    return EndPosition(option_time_ms(END_OPTION, given, properties, VALID_END))


def _only_for_queries(given: object) -> ConfigurationError:
    reason = "a start after a record or at the tip is valid only for a query"
    return ConfigurationError(START_OPTION, str(given), VALID_START, reason=reason)


def _ends(given: str, now: EndPosition, streams: Sequence[str]) -> dict[str, EndPosition]:
    entries = json_by_shard(END_OPTION, given, VALID_END, streams)
    positions = {shard: position_of(END_OPTION, entry, VALID_END, "NOW") for shard, entry in entries.items()}
    return {shard: now if at == "NOW" else EndPosition(now.arrival_ms, int(at)) for shard, at in positions.items()}
