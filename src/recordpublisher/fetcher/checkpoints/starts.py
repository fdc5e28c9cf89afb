"""Starts: where shards start of which a job has stored no position. How they apply to a listing is said in `initial_states.py`.

`flink.stream.initpos` is parsed in `publishers/initial_position.py`, a start for each shard by `states_by_shard`.
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
    """What is valid where positions are given by shard; `words`: what may stand in place of a number."""
    return f'JSON by shard: {{"<shard id>": "<sequence number>"{words}}}'


VALID_BY_SHARD = by_shard(', "TRIM_HORIZON" or, in a query, "LATEST"')
_SHARD_END = "SHARD_END"


class Starts(msgspec.Struct, frozen=True):
    """`by_shard`: the state in which a shard starts that is named, by its id; then the job has one stream. `default`: of all others."""

    default: StartingPosition
    by_shard: Mapping[str, ShardState] = msgspec.field(default_factory=dict)

    def of(self, shard: Shard) -> ShardState:
        """The state in which a shard starts. At the number that Kinesis lists for its beginning, or before it, that is TRIM_HORIZON."""
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
        """As `pinned_at`, with the service's time, which is asked for only if it is needed."""
        return self if self.is_pinned else self.pinned_at(await service_time_ms())

    def pinned_at(self, now_ms: int | None) -> Starts:
        """LATEST as a time (epoch ms; None: not known), so that a start that is tried again, or in another process, is the same (P3)."""
        if now_ms is None:
            return self
        named = {shard: replace(each, start=each.start.pinned_at(now_ms)) for shard, each in self.by_shard.items()}
        return Starts(self.default.pinned_at(now_ms), named)


def given_position(state: ShardState) -> SequenceNumber | None:
    """The sequence number at or after which a shard starts, if it does."""
    if state.position is None and state.start.type is PositionType.AT_SEQUENCE_NUMBER:
        return SequenceNumber(state.start.sequence_number or "")
    return state.position


def states_by_shard(option: str, given: str, streams: Sequence[str]) -> dict[str, ShardState]:
    """Where each named shard starts, by its id, from JSON: in our words, or as qubole's and awslabs' connectors store positions.

    `option` is what errors name. Raises: ConfigurationError.
    """
    entries = json_by_shard(option, given, VALID_BY_SHARD, streams)
    _check_stream(option, entries.pop("metadata", None), streams[0])
    if not entries:
        raise ConfigurationError(option, given, VALID_BY_SHARD)
    return {shard: _state_of(option, entry) for shard, entry in entries.items()}


def json_by_shard(option: str, given: str, valid: str, streams: Sequence[str]) -> dict[str, Any]:
    """The entries of positions by shard, at either end of a read. Raises: ConfigurationError, also for several streams."""
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
    """The position in a shard's entry, at either end of a read: a sequence number, or one of `words`. Raises: ConfigurationError."""
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
    """The state of one shard; a text is TRIM_HORIZON, LATEST, or the sequence number of the first record to read."""
    if isinstance(entry, dict):
        return _stored_state(option, entry)
    position = position_of(option, entry, VALID_BY_SHARD, PositionType.TRIM_HORIZON, PositionType.LATEST)
    if position.isdecimal():
        return ShardState(StartingPosition(PositionType.AT_SEQUENCE_NUMBER, position))
    return ShardState(StartingPosition(PositionType(position)))


def _stored_state(option: str, entry: Mapping[str, Any]) -> ShardState:
    """A position as qubole's and awslabs' connectors store it: with iteratorType and iteratorPosition, times in epoch ms."""
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
