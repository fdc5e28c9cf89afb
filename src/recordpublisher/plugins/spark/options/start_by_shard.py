"""A start for each shard: `startingPosition` as JSON, in our words or as qubole's and awslabs' connectors store positions."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.positions import WHOLE_RECORD, PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.times import has_no_zone
from recordpublisher.publishers.stream_arns import stream_name

from . import SPARK

START_OPTION = "startingPosition"
STARTS = SPARK.text(
    "flink.spark.start.shards",
    'Where reading starts in each shard, as JSON: {"shardId-000000000000": "<sequence number>"} (at that record), TRIM_HORIZON or LATEST. '
    "In a query shards that are not named start at `flink.stream.initpos`; `spark.read` does not read them. Option `startingPosition`.",
)
VALID_START = (
    'LATEST, TRIM_HORIZON, "AT_TIMESTAMP <time>", a time, or JSON by shard: '
    '{"<shard id>": "<sequence number>", "TRIM_HORIZON" or "LATEST"}'
)
_OPTIONS = (START_OPTION, f"kinesis.{START_OPTION}")
_METADATA = "metadata"
"""The entry of stored positions that is no shard."""
_SHARD_END = "SHARD_END"
AT_TIME = "AT_TIMESTAMP "


def with_starts(options: Mapping[str, str]) -> dict[str, str]:
    """The options with a start by shard (JSON) under its own key. Raises: ConfigurationError."""
    given = dict(options)
    for key in [key for key in given if key.lower() in map(str.lower, _OPTIONS)]:
        value = given[key].strip()
        if value.startswith("{"):
            if given.setdefault(STARTS.key, value) != value:
                raise ConfigurationError(START_OPTION, value, "one start", reason="another one is given, too")
            del given[key]
    return given


def time_with_zone(option: str, given: str) -> str:
    """The time in `T` or `AT_TIMESTAMP T`; any other text as it is. Raises: ConfigurationError for a time without a zone.

    Spark prints times in the zone of its session, which it tells no source: a printed time that is taken as UTC means other rows.
    """
    time = given[len(AT_TIME) :].strip() if given.upper().startswith(AT_TIME) else given
    if has_no_zone(time):
        exact = datetime.fromisoformat(time).isoformat()
        raise ConfigurationError(option, given, f"{exact}Z in UTC, or with another zone such as {exact}+01:00")
    return time


def starts_by_shard(properties: Properties, streams: Sequence[str]) -> dict[str, ShardState] | None:
    """Where each named shard starts, by its id; LATEST is not pinned yet. None without a start by shard. Raises: ConfigurationError."""
    given = properties.value(STARTS)
    if given is None:
        return None
    entries = json_by_shard(START_OPTION, given, VALID_START)
    _check_stream(entries.pop(_METADATA, None), streams)
    if not entries:
        raise ConfigurationError(START_OPTION, given, VALID_START)
    return {shard: _state_of(entry) for shard, entry in entries.items()}


def json_by_shard(option: str, given: str, valid: str) -> dict[str, Any]:
    """A JSON object as a dict. Raises: ConfigurationError."""
    try:
        entries = json.loads(given)
    except ValueError as error:
        raise ConfigurationError(option, given, valid, reason=str(error)) from None
    if not isinstance(entries, dict) or not entries:
        raise ConfigurationError(option, given, valid)
    return entries


def sequence_number(option: str, given: object, valid: str) -> str:
    """The text of a sequence number. Raises: ConfigurationError."""
    if not isinstance(given, str) or not given.isdecimal():
        raise ConfigurationError(option, str(given), valid)
    return given


def _check_stream(metadata: object, streams: Sequence[str]) -> None:
    if len(streams) > 1:
        raise ConfigurationError("streams", ",".join(streams), "one stream, where positions are given by shard")
    stored = metadata.get("streamName") if isinstance(metadata, dict) else None
    if stored is not None and stored != stream_name(streams[0]):
        reason = f"these positions are of the stream {stored!r}"
        raise ConfigurationError(START_OPTION, str(stored), repr(stream_name(streams[0])), reason=reason)


def _state_of(entry: object) -> ShardState:
    """The state of one shard; a text is TRIM_HORIZON, LATEST, or the sequence number of the first record to read."""
    if isinstance(entry, dict):
        return _stored_state(entry)
    if isinstance(entry, str) and entry.upper() in (PositionType.TRIM_HORIZON, PositionType.LATEST):
        return ShardState(StartingPosition(PositionType(entry.upper())))
    sequence = sequence_number(START_OPTION, entry, VALID_START)
    return ShardState(StartingPosition(PositionType.AT_SEQUENCE_NUMBER, sequence))


def _stored_state(entry: Mapping[str, Any]) -> ShardState:
    """A position as qubole's and awslabs' connectors store it: with iteratorType and iteratorPosition, times in epoch ms."""
    kind, at = str(entry.get("iteratorType", "")).upper(), str(entry.get("iteratorPosition", ""))
    if kind == _SHARD_END:
        return ShardState(StartingPosition.trim_horizon(), ended=True)
    if kind not in list(PositionType):
        raise ConfigurationError(
            START_OPTION, json.dumps(entry), f"an iteratorType of {', '.join(PositionType)}, {_SHARD_END}"
        )
    if kind in (PositionType.TRIM_HORIZON, PositionType.LATEST):
        return ShardState(StartingPosition(PositionType(kind)))
    number = sequence_number(START_OPTION, at, f"an iteratorPosition of digits for {kind}")
    if kind == PositionType.AT_TIMESTAMP:
        return ShardState(StartingPosition.at_timestamp(int(number)))
    if kind == PositionType.AT_SEQUENCE_NUMBER:
        return ShardState(StartingPosition(PositionType.AT_SEQUENCE_NUMBER, number))
    sub_sequence = str(entry.get("subSequenceNumber", WHOLE_RECORD))
    is_inside = sub_sequence.isdecimal() and str(entry.get("isLast", "true")).lower() == "false"
    after = SequenceNumber(number, int(sub_sequence) if is_inside else WHOLE_RECORD)
    return ShardState(StartingPosition.trim_horizon(), position=after)
