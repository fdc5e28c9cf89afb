"""Defines where shards start that have no stored position. `initial_states.py` applies this to a listing.

`publishers/initial_position.py` parses `flink.stream.initpos`; `states_by_shard` parses a start for each shard.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import time_ms
from recordpublisher.publishers.positions import WHOLE_RECORD, PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.stream_arns import stream_name

from ..shards.shard_state import ShardState


def by_shard(words: str) -> str:
    """Return the valid values, in words, for positions given by shard. `words`: what may be given instead of a number."""
    return f'JSON by shard: {{"<shard id>": "<sequence number>"{words}}}'


VALID_BY_SHARD = by_shard(', "TRIM_HORIZON" or, in a query, "LATEST"')
_SHARD_END = "SHARD_END"


class Starts(msgspec.Struct, frozen=True):
    """Where shards start that have no stored position.

    - `default`: the start of every shard that is not in `by_shard`.
    - `by_shard`: the state in which a named shard starts, by shard id. The job then reads one stream.
    """

    default: StartingPosition
    by_shard: Mapping[str, ShardState] = msgspec.field(default_factory=dict)

    def of(self, shard: Shard) -> ShardState:
        """Return the state in which a shard starts.

        If the given sequence number is at or before the shard's listed beginning, it starts at TRIM_HORIZON.
        """
        state = self.by_shard.get(shard.shard_id) or ShardState(self.default)
        first = given_position(state)
        if state.ended or first is None or not shard.begins_at(first.sequence):
            return state
        return replace(state, start=StartingPosition.trim_horizon(), position=None)

    @property
    def is_pinned(self) -> bool:
        """Whether no shard starts at LATEST."""
        starts = (self.default, *(state.start for state in self.by_shard.values()))
        return all(start.type is not PositionType.LATEST for start in starts)

    async def pinned(self, service_time_ms: Callable[[], Awaitable[int]]) -> Starts:
        """Return these starts with LATEST replaced by the service's time, which is requested only if it is needed. See `pinned_at`."""
        return self if self.is_pinned else self.pinned_at(await service_time_ms())

    def pinned_at(self, now_ms: int) -> Starts:
        """Return these starts with LATEST and ages replaced by times. `now_ms` is the time of the service's clock (epoch ms)."""
        return self._each(lambda start: start.pinned_at(now_ms))

    def begun_at(self, start_ms: int | None) -> Starts:
        """Return these starts with LATEST or an age replaced by the time to which the job pinned it (epoch ms); unchanged if it is None.

        So a start that is tried again, or in another process, is the same (P3).
        """
        return self if start_ms is None else self._each(lambda start: start.begun_at(start_ms))

    def _each(self, changed: Callable[[StartingPosition], StartingPosition]) -> Starts:
        named = {shard: replace(each, start=changed(each.start)) for shard, each in self.by_shard.items()}
        return Starts(changed(self.default), named)


def given_position(state: ShardState) -> SequenceNumber | None:
    """Return the sequence number at or after which a shard starts, or None if it does not start at one."""
    if state.position is None and state.start.type is PositionType.AT_SEQUENCE_NUMBER:
        return SequenceNumber(state.start.sequence_number or "")
    return state.position


def states_by_shard(option: str, given: str, streams: Sequence[str]) -> dict[str, ShardState]:
    """Return where each named shard starts, by shard id, from JSON.

    The positions may be in our format, or in the format in which the connectors of qubole and awslabs store them. `option` is the option
    that errors name.

    Raises: ConfigurationError if the text is not valid, or if positions of another stream or several streams are given.
    """
    entries = json_by_shard(option, given, VALID_BY_SHARD, streams)
    _check_stream(option, entries.pop("metadata", None), streams[0])
    if not entries:
        raise ConfigurationError(option, given, VALID_BY_SHARD)
    return {shard: _state_of(option, entry) for shard, entry in entries.items()}


def json_by_shard(option: str, given: str, valid: str, streams: Sequence[str]) -> dict[str, Any]:
    """Return the entries of positions by shard, for the start or the end of a read.

    Raises: ConfigurationError if the text is not a JSON object with entries, or if there are several streams.
    """
    try:
        entries = json.loads(given)
    except ValueError as error:
        raise ConfigurationError(option, given, valid, reason=str(error)) from None
    if not isinstance(entries, dict) or not entries:
        raise ConfigurationError(option, given, valid)
    if len(streams) > 1:
        raise ConfigurationError("streams", ",".join(streams), "one stream, where positions are given by shard")
    return entries


def position_of(option: str, entry: object, valid: str, *words: str) -> str:
    """Return the position in a shard's entry, for the start or the end of a read: a sequence number, or one of `words`.

    Raises: ConfigurationError if the entry is neither.
    """
    text = entry.upper() if isinstance(entry, str) else ""
    if text not in words and not re.fullmatch("[0-9]{1,129}", text):
        raise ConfigurationError(option, str(entry), valid)
    return text


def _check_stream(option: str, metadata: object, stream: str) -> None:
    stored = metadata.get("streamName") if isinstance(metadata, dict) else None
    if stored is not None and stored != stream_name(stream):
        reason = f"these positions are of the stream {stored!r}"
        raise ConfigurationError(option, str(stored), repr(stream_name(stream)), reason=reason)


def _state_of(option: str, entry: object) -> ShardState:
    """Return the state in which one shard starts. A text is TRIM_HORIZON, LATEST, or the number of the first record to read."""
    if isinstance(entry, dict):
        return _stored_state(option, entry)
    position = position_of(option, entry, VALID_BY_SHARD, PositionType.TRIM_HORIZON, PositionType.LATEST)
    if position.isdecimal():
        return ShardState(StartingPosition(PositionType.AT_SEQUENCE_NUMBER, position))
    return ShardState(StartingPosition(PositionType(position)))


def _stored_state(option: str, entry: Mapping[str, Any]) -> ShardState:
    """Return a position that a connector of qubole or awslabs has stored: with iteratorType and iteratorPosition, times in epoch ms."""
    kind, at = str(entry.get("iteratorType", "")).upper(), str(entry.get("iteratorPosition", ""))
    if kind == _SHARD_END:
        return ShardState(StartingPosition.trim_horizon(), ended=True)
    if kind not in list(PositionType):
        valid = f"an iteratorType of {', '.join(PositionType)}, {_SHARD_END}"
        raise ConfigurationError(option, json.dumps(entry), valid)
    if kind in (PositionType.TRIM_HORIZON, PositionType.LATEST):
        return ShardState(StartingPosition(PositionType(kind)))
    number = position_of(option, at, f"an iteratorPosition of digits for {kind}")
    if kind == PositionType.AT_TIMESTAMP:
        return ShardState(StartingPosition.at_timestamp(time_ms(option, number, "an iteratorPosition in epoch ms")))
    if kind == PositionType.AT_SEQUENCE_NUMBER:
        return ShardState(StartingPosition(PositionType.AT_SEQUENCE_NUMBER, number))
    sub_sequence = str(entry.get("subSequenceNumber", WHOLE_RECORD))
    is_inside = sub_sequence.isdecimal() and str(entry.get("isLast", "true")).lower() == "false"
    after = SequenceNumber(number, int(sub_sequence) if is_inside else WHOLE_RECORD)
    return ShardState(StartingPosition.trim_horizon(), position=after)
