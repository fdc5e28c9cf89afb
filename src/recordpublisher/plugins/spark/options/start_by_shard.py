"""Reads the option `startingPosition` if its value is a JSON object with a start for each shard.

`fetcher/checkpoints/shard_starts.py` parses the JSON.
"""

from collections.abc import Mapping, Sequence

from recordpublisher.fetcher.checkpoints.shard_starts import VALID_BY_SHARD, Starts, states_by_shard
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import initial_position, initial_timestamp_ms
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import INITIAL_TIMESTAMP

from . import SPARK

START_OPTION = "startingPosition"
STARTS = SPARK.text(
    "flink.spark.start.shards",
    f"At which record of a shard reading starts, as {VALID_BY_SHARD}. "
    "In a query shards that are not named start at `flink.stream.initpos`; `spark.read` does not read them. Option `startingPosition`.",
)
VALID_START = f'TRIM_HORIZON (or earliest), in a query LATEST, "AT_TIMESTAMP <time>", a time, an age such as 1h, or {VALID_BY_SHARD}'
_OPTIONS = (START_OPTION, f"kinesis.{START_OPTION}", "initialPosition")
AT_TIME = "AT_TIMESTAMP "


def starts_by_shard(properties: Properties, streams: Sequence[str]) -> dict[str, ShardState]:
    """Return the start of each shard that `startingPosition` names, by shard id. Return {} if it names no shards.

    LATEST is not replaced by a time.

    Raises: ConfigurationError if the start is invalid.
    """
    given = properties.value(STARTS)
    return {} if given is None else states_by_shard(START_OPTION, given, streams)


def starts_of(properties: Properties, streams: Sequence[str]) -> Starts:
    """Return where a new query starts in each shard. LATEST is not replaced by a time.

    Raises: ConfigurationError if the start is invalid.
    """
    return Starts(initial_position(properties), starts_by_shard(properties, streams))


def with_starts(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with starts by shard (JSON) under a key of their own, and not under `startingPosition`.

    Raises: ConfigurationError if two different starts by shard are given.
    """
    given = dict(options)
    for key in [key for key in given if key.lower() in map(str.lower, _OPTIONS)]:
        value = given[key].strip()
        # `{"at_timestamp": ...}` of Databricks is one time for all shards.
        if value.startswith("{") and "at_timestamp" not in value:
            if given.setdefault(STARTS.key, value) != value:
                raise ConfigurationError.conflict(START_OPTION, STARTS.key, reason="both give the start of each shard")
            del given[key]
    return given


def option_time_ms(option: str, given: str, properties: Properties, valid: str) -> int:
    """Return the time in `given`: a time, or `AT_TIMESTAMP` and a time (epoch ms).

    Raises: ConfigurationError if it is not a time. The error names the option.
    """
    time = given[len(AT_TIME) :].strip() if given.upper().startswith(AT_TIME) else given
    try:
        return initial_timestamp_ms(properties.merged({INITIAL_TIMESTAMP.key: time}))
    except ConfigurationError as error:
        if error.key != INITIAL_TIMESTAMP.key:
            raise
        raise ConfigurationError(option, given, f"{valid}; a time is {error.valid}", reason=error.reason) from None
