"""Checks the arguments of `rp.DataFetcher` before anything runs.

`batch_decorator_factory` decides how batches get values, event times and watermarks, from functions or properties.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from functools import partial
from inspect import signature
from typing import Any, TypeVar

import msgspec

from recordpublisher.consumer.deserialization import (
    Deserializer,
    DeserializerArgument,
    StreamDeserializer,
    deserializer_of,
)
from recordpublisher.consumer.event_time import ImplausibleTimes, timestamp_assigner_for
from recordpublisher.consumer.shard_consumer import BatchDecorator, log
from recordpublisher.consumer.watermark_strategies import AssignedWatermarks, WatermarkStrategy
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.settings import FetcherSettings
from recordpublisher.fetcher.sink import Sink, State, stores_positions
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import passed_initial_position
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.job_properties import (
    FUTURE_LIMIT,
    ON_BAD_RECORD,
    SCHEMA,
    SINK,
    STATE_URI,
    STREAMS,
    STREAMS_FILE,
    STREAMS_FUNCTION,
    OnBadRecord,
)
from recordpublisher.publishers.properties.keyword_types import ReadSettings
from recordpublisher.publishers.properties.properties import MIN_SIMILARITY, Properties, properties_by_keyword
from recordpublisher.publishers.properties.sink_properties import ARCHIVE
from recordpublisher.publishers.records import Record
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.skipped_records_log import SkippedRecordsLog
from recordpublisher.publishers.user_code import check_user_function

from ..deserializers.decompression import decompressor_for
from ..host.build_from_properties import build_deserializer, watermark_strategy_factory
from ..host.registry import Registry
from ..stores.folder_store import FolderStore
from .stream_names import StreamsArgument, streams_argument

T = TypeVar("T")


def checked_properties(
    given: Mapping[str, object] | None, settings: ReadSettings, of: Callable[..., Any], **arguments: object
) -> Properties:
    """Return the properties of a mapping and of keyword arguments.

    An argument that is a text (`sink="sql"`) sets the property of that name.

    - `of`: the function that was called with these arguments. An error about an unknown argument names the nearest of its arguments.

    Raises: ConfigurationError in these cases:

    - `given` is not a mapping.
    - A keyword argument is unknown, or contradicts another one.
    - A deserializer and a schema are given. Both give the type of the values.
    """
    named: Any = {name: value for name, value in arguments.items() if isinstance(value, str)}
    try:
        properties = Properties(given, **settings, **named)
    except ConfigurationError as error:
        hint = _argument_hint(error.key, of) if error.key in settings else ""
        if not hint:
            raise
        reason = f"there is no such keyword argument; {hint}"
        raise ConfigurationError(
            error.key, error.value, error.valid, reason=reason, statement="is not accepted"
        ) from None
    if arguments.get("deserializer") is not None and "deserializer" not in named and properties.is_set(SCHEMA):
        raise ConfigurationError.conflict(SCHEMA.key, "deserializer", reason="both give the type of the values")
    return properties


class CommandOptions(msgspec.Struct, frozen=True):
    """The changes that a command makes to the fetcher of a program.

    - `given`: properties of the command. They take precedence over the program's properties and arguments.
    - `change`: a function that is applied to the properties last.
    """

    given: Properties = msgspec.field(default_factory=Properties)
    change: Callable[[Properties], Properties] = lambda own: own

    def properties(self, own: Properties) -> Properties:
        """Return the properties to use instead of the program's own."""
        return self.change(own.merged(self.given))

    def argument(self, own: T, declared: Property[Any]) -> T | None:
        """Return `own`, an argument in the user's program. Return None if the command's options set the property `declared` instead."""
        return None if self.given.is_set(declared) else own

    def streams(self, own: StreamsArgument) -> StreamsArgument:
        """Return the streams in the command's options, or else the program's. Raises: ConfigurationError if the options are invalid."""
        is_given = any(map(self.given.is_set, (STREAMS, STREAMS_FILE, STREAMS_FUNCTION)))
        return streams_argument(self.given) if is_given else own


COMMAND_OPTIONS: ContextVar[CommandOptions] = ContextVar("recordpublisher_of_command", default=CommandOptions())  # noqa: B039 - frozen
"""The options of `recordpublisher run shop:job`, and of the commands that describe such a job."""


_MEANT = {
    **dict.fromkeys(("begin", "from_", "since", "starting_position", "start_time"), "start"),
    **dict.fromkeys(("until", "stop", "ending_position", "end_time"), "end"),
    **dict.fromkeys(("limit", "count", "max_count", "n"), "max_records"),
}
"""Names of arguments in other libraries, each with the name of the same argument here."""


def _argument_hint(unknown: str, of: Callable[..., Any]) -> str:
    """Return a hint that names the argument that was meant, here or in `run_bounded`. Empty if a property has a more similar name."""
    bounds, arguments, properties = Bounds.__dataclass_fields__, signature(of).parameters, properties_by_keyword()
    near = _MEANT.get(unknown) or "".join(
        get_close_matches(unknown, [*arguments, *bounds, *properties], 1, MIN_SIMILARITY)
    )
    if near in arguments or near == "start":
        return f"did you mean '{near}'?"
    if near not in bounds or "streams" not in arguments:
        return ""
    return "this reads up to 'end'" if "end" in arguments else f"'{near}' is an argument of run_bounded"


def properties_with_arguments(
    properties: Properties, streams: Iterable[str], sink: Sink | None, store: ConditionalStore | None
) -> Properties:
    """Return the properties with the streams and the state folder that were given as arguments.

    Raises: ConfigurationError if the program gave a sink that keeps positions, or a store other than a folder. No property names these
    objects.
    """
    given = properties.merged({STREAMS.key: ",".join(streams), STREAMS_FILE.key: None, STREAMS_FUNCTION.key: None})
    if isinstance(store, FolderStore):
        return given.merged({STATE_URI.key: store.place})
    if store is not None:
        reason = f"commands cannot use a store that the program makes. Name the store with {STATE_URI.key} instead"
        raise ConfigurationError("state_store", type(store).__name__, reason=reason)
    if sink is not None and stores_positions(type(sink)):
        reason = f"commands cannot use a sink that the program makes. Name the sink with {SINK.key} instead"
        raise ConfigurationError("sink", type(sink).__name__, reason=reason)
    return given


def checked_for_archive(given: Properties, sink: Sink) -> Sink:
    """Check that the sink can write an archive if `flink.sink.archive` is set, and return it. Raises: ConfigurationError if it cannot."""
    if given.value(ARCHIVE) and type(sink).shard_started is Sink.shard_started:
        reason = f"{type(sink).__name__} writes no archive; take the sink jsonl, parquet, delta or iceberg"
        raise ConfigurationError(ARCHIVE.key, "true", reason=reason)
    return sink


def checked_for_no_archive(given: Properties, sink: Sink, reason: str) -> Sink:
    """Check that the sink writes no archive, and return it. Raises: ConfigurationError, with this reason, if it does.

    The name of an archive's file says that it has every record of a shard between two positions. A reader would pass over missing ones.
    """
    if given.value(ARCHIVE) or getattr(sink, "keeps_archive", False):
        raise ConfigurationError(ARCHIVE.key, "true", reason=reason)
    return sink


def check_sink(sink: object) -> None:
    """Check that `sink` is an instance of `Sink`. Raises: ConfigurationError if it is not."""
    if not isinstance(sink, Sink):
        hint = "it is a class" if isinstance(sink, type) else "it is a function" if callable(sink) else ""
        name = getattr(sink, "__name__", "") if hint else ""
        valid = (
            f"{name}()"
            if isinstance(sink, type)
            else f"rp.MapSink({name})"
            if hint
            else "an instance of recordpublisher.Sink"
        )
        raise ConfigurationError("sink", _shown(sink), valid, reason=hint)


def check_store(store: object) -> None:
    """Check that `store` is None or an instance of `ConditionalStore`. Raises: ConfigurationError if it is not."""
    if store is not None and not isinstance(store, ConditionalStore):
        raise ConfigurationError("state_store", _shown(store), "an instance of recordpublisher.ConditionalStore")


def check_function(name: str, function: Callable[..., Any] | None, valid: str = "a function of a Record") -> None:
    """Check that `function` is None or a plain function. Raises: ConfigurationError if it is not."""
    if function is not None:
        check_user_function(name, function, valid, is_plain=True)


def checked_snapshots(restore: State | Sequence[State] | None) -> tuple[State, ...]:
    """Return the snapshots of `restore`: one, several or None. Raises: ConfigurationError if it is something else."""
    if restore is None:
        return ()
    given = (restore,) if isinstance(restore, Mapping) else restore
    if not isinstance(given, Sequence) or not all(isinstance(each, Mapping) for each in given):
        raise ConfigurationError("restore", _shown(restore), "a snapshot (see DataFetcher.snapshot) or a list of them")
    return tuple(given)


def _shown(given: object) -> object:
    return given if given is None or isinstance(given, str) else repr(given)[:200]


def check_bounded(properties: Properties) -> None:
    """Check that no property is set that bounded reads do not support. Raises: ConfigurationError if one is set."""
    if properties.value(ON_BAD_RECORD) == "DEAD_LETTER":
        reason = "dead letters need a sink of this library, and this read has none"
        raise ConfigurationError(ON_BAD_RECORD.key, "DEAD_LETTER", "FAIL, SKIP", reason=reason)


# --- the values, event times and watermarks of batches --------------------------------------------------------------------------------

Assigner = Callable[[Record], int]
MakeDecorator = Callable[[Shard, ShardMetrics], BatchDecorator]


def batch_decorator_factory(
    registry: Registry,
    properties: Properties,
    deserializer: DeserializerArgument[Any] | None = None,
    timestamp_assigner: Assigner | None = None,
    watermark_assigner: Assigner | None = None,
) -> MakeDecorator:
    """Return a function that makes the `BatchDecorator` of each shard. Functions override properties.

    Raises: ConfigurationError if a setting is invalid.
    """
    values = chosen_deserializer(registry, properties, deserializer)
    times = timestamp_assigner_for(properties, timestamp_assigner)
    strategy: Callable[[], WatermarkStrategy]
    if watermark_assigner is None:
        strategy = watermark_strategy_factory(registry, properties)
    else:
        strategy = partial(AssignedWatermarks, properties, watermark_assigner)
    on_poison, limit = OnBadRecord[properties.value(ON_BAD_RECORD)], properties.value(FUTURE_LIMIT)
    decompressor = decompressor_for(properties) or getattr(values, "decompressor", None)
    skipped_log, implausible_times = SkippedRecordsLog(log), ImplausibleTimes(limit)

    def decorator_for(shard: Shard, metrics: ShardMetrics) -> BatchDecorator:
        return BatchDecorator(
            values,
            times,
            strategy(),
            metrics,
            on_poison=on_poison,
            future_limit_ms=limit,
            decompressor=decompressor,
            skipped_log=skipped_log,
            implausible_times=implausible_times,
        )

    return decorator_for


def decorators_and_type(
    registry: Registry,
    properties: Properties,
    deserializer: DeserializerArgument[Any] | None = None,
    *times: Assigner | None,
) -> tuple[MakeDecorator, Any]:
    """Return the result of `batch_decorator_factory`, and the type of the values. The sink receives the type in its context."""
    values = chosen_deserializer(registry, properties, deserializer)
    return batch_decorator_factory(registry, properties, values, *times), value_type_made_by(values)


def check_reading(registry: Registry, properties: Properties) -> None:
    """Check the start, the limits, and how values and times are made, as the constructor of a job does.

    Only checks that need no call to a service are made. Raises: ConfigurationError if a setting is invalid.
    """
    passed_initial_position(properties, SystemClock().now_ms())
    FetcherSettings.of(properties)
    batch_decorator_factory(registry, properties)


def chosen_deserializer(
    registry: Registry, properties: Properties, deserializer: DeserializerArgument[Any] | None
) -> Deserializer[Any]:
    """Return the deserializer in the argument. If it is None, return the one that the properties name.

    Raises: ConfigurationError if it is invalid.
    """
    is_named = deserializer is None or isinstance(deserializer, str)  # A text is the value of the property.
    return build_deserializer(registry, properties) if is_named else deserializer_of(deserializer)


def value_type_made_by(values: Deserializer[Any]) -> Any:
    """Return the type of the values that a deserializer makes, or None if it is not known."""
    return getattr(values, "into", None) or getattr(values, "makes", None)


def value_types_made_by(values: Deserializer[Any]) -> dict[str, Any]:
    """Return the known types of the values by stream, if there is a deserializer for each stream; else an empty mapping."""
    by_stream = values.by_stream if isinstance(values, StreamDeserializer) else {}
    return {stream: made for stream, each in by_stream.items() if (made := value_type_made_by(each)) is not None}
