"""Builds the objects that a job's properties name: looks up a name in the registry, and makes the class with the properties.

Each function belongs to one property, for example `build_sink` to `flink.sink`.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NewType, TypeVar, get_origin

from recordpublisher.consumer.deserialization import VALID_DESERIALIZER, Deserializer, deserializer_of
from recordpublisher.consumer.typed_values import Json
from recordpublisher.consumer.watermark_strategies import WatermarkStrategy
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter
from recordpublisher.fetcher.pipeline.checked_sink_calls import destination_of
from recordpublisher.fetcher.pipeline.dead_letters import SINK_KEY_PREFIX, dead_letter_sink_error
from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.base import QueueSource, RecordPublisherFactory, RecordSource
from recordpublisher.publishers.errors import ConfigurationError, PluginError, RecordPublisherError
from recordpublisher.publishers.properties.config_fields import imported_object
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.job_properties import (
    DEAD_LETTER,
    DEAD_LETTER_SINK,
    DESERIALIZER,
    JOB_NAME,
    METRICS_EXPORTERS,
    ON_BAD_RECORD,
    SCHEMA,
    SINK,
    STATE_URI,
    WATERMARK_STRATEGY,
)
from recordpublisher.publishers.properties.properties import Properties, hint_of_misspelt, is_unknown
from recordpublisher.publishers.properties.reading_properties import RECORD_PUBLISHER
from recordpublisher.publishers.properties.sink_properties import ARCHIVE
from recordpublisher.publishers.safe_text import repr_of
from recordpublisher.publishers.user_code import can_take

from ..deserializers.schemas import ConvertedValues, InferColumns, InferredJson, schema_type
from ..stores.back_ends import back_end_of
from ..stores.by_location import conditional_store_of
from .registry import NameTable, Registry

S = TypeVar("S", bound=RecordSource)


def build_source(registry: Registry, properties: Properties, made: type[S], name: str | None = None) -> S:
    """Return a source of records, made with the properties.

    - `made`: the class of the source.
    - `name`: the registered name of that class. By default it is the value of `flink.stream.recordpublisher`.

    Raises: ConfigurationError if a property of the source is invalid; PluginError if a plugin's class raises another error.
    """
    name = name or properties.as_given(RECORD_PUBLISHER)
    source = registry.publishers.make(name, RECORD_PUBLISHER.key, properties)
    assert isinstance(source, made)
    return source


def build_sink(registry: Registry, properties: Properties) -> Sink:
    """Return the sink of `flink.sink`. Raises: ConfigurationError if it is not set or unknown, or if a property of the sink is invalid."""
    name = properties.value(SINK)
    if name is None:
        raise ConfigurationError(SINK.key, None, ", ".join(registry.sinks.names()))
    return registry.sinks.make(name, SINK.key, properties)


def check_properties(registry: Registry, properties: Properties) -> bool:
    """Check the given properties (`Properties.check`), including those that the chosen plugins declare.

    Return whether a plugin may declare properties that are unknown, because it was not imported.

    Raises: ConfigurationError if a value is invalid, or if a key looks like a misspelt property; PluginError if a key is unknown and a
    chosen plugin cannot be imported. That plugin may declare the key.
    """
    may_lack_keys = registry.import_chosen(properties)
    choices: tuple[tuple[Property[Any], NameTable[Any]], ...] = (
        (SINK, registry.sinks),
        (DEAD_LETTER_SINK, registry.sinks),
        (DESERIALIZER, registry.deserializers),
        (RECORD_PUBLISHER, registry.publishers),
    )
    try:
        properties.check(all_imported=not may_lack_keys)
    except ConfigurationError as error:
        for declared, table in choices if is_unknown(error.key) else ():
            with suppress(ConfigurationError):
                table.get(properties.value(declared) or "", declared.key)
        raise
    return may_lack_keys


def reads_a_queue(properties: Properties) -> bool:
    """Return whether the job reads a queue. False if its publisher is not installed, because other code reports that."""
    made = _source_class(properties)
    return made is not None and issubclass(made, QueueSource)


def shard_publisher_names(properties: Properties) -> str:
    """Return, for a message, which values of `flink.stream.recordpublisher` read shards."""
    return "the name of a publisher that reads shards" if _reads_own_queue(properties) else "POLLING or EFO"


def why_not_in_kinesis(
    properties: Properties, limit: str = "only streams of Kinesis can be asked for their newest records"
) -> str:
    """Return why Kinesis does not know the streams of the job. Return an empty text if it knows them, or if the publisher is not installed.

    - `limit`: the end of the returned text. It says what needs streams of Kinesis.
    """
    kind = "lists its streams itself" if lists_its_shards(properties) else ""
    kind = "reads a queue that is not in Kinesis" if _reads_own_queue(properties) else kind
    return f"this publisher {kind}, and {limit}" if kind else ""


def lists_its_shards(properties: Properties) -> bool:
    """Return whether the publisher of the job lists the shards of its streams itself, instead of asking Kinesis.

    Return False for a queue, and if the publisher is not installed.
    """
    made = _source_class(properties)
    if made is None or not issubclass(made, RecordPublisherFactory):
        return False
    return made.discover is not RecordPublisherFactory.discover


def calls_a_service(properties: Properties) -> bool:
    """Return whether the job calls a service that may be unavailable: to read records, or for its state or output.

    A publisher calls none if it lists its streams itself and names no endpoint, as a publisher of files does. State and output need none if
    they are on this machine.
    """
    made = _source_class(properties)
    if not lists_its_shards(properties) or (made is not None and made.endpoint_url is not RecordSource.endpoint_url):
        return True
    if (properties.value(SINK) or "").lower() == "kinesis":
        return True
    return any(not back_end_of(value).is_local for value in properties.values())


def _reads_own_queue(properties: Properties) -> bool:
    made = _source_class(properties)
    return made is not None and _is_own_queue(made)


def _is_own_queue(made: type[RecordSource]) -> bool:
    """Return whether a source is a queue of a plugin, and not one that has the records of a Kinesis stream."""
    if not issubclass(made, QueueSource):
        return False
    from recordpublisher.publishers.kinesis_queue_source import (
        KinesisQueue,  # Imported here because it loads the AWS SDK.
    )

    return not issubclass(made, KinesisQueue)


def _source_class(properties: Properties) -> type[RecordSource] | None:
    from .plugin_loading import load_registry  # Imported here because it loads pluggy, which most commands do not need.

    registry = load_registry()
    try:
        return source_class(registry, properties).wrapped(properties)
    except RecordPublisherError:
        return None


def source_class(registry: Registry, properties: Properties) -> type[RecordSource]:
    """Return the class of `flink.stream.recordpublisher`, not an instance.

    Raises: ConfigurationError if the name is not registered; PluginError if the class cannot be imported.
    """
    return registry.publishers.get(properties.as_given(RECORD_PUBLISHER), RECORD_PUBLISHER.key)


def checked_publisher_class(
    registry: Registry, properties: Properties, what: str, name: str | None = None
) -> type[RecordPublisherFactory]:
    """Return the class of the publisher `name`, by default of `flink.stream.recordpublisher`.

    A queue is refused, because it has no positions.

    - `what`: the part of the program that needs positions, for messages.

    Raises: ConfigurationError if the name is not registered, or is a queue; PluginError if the class cannot be imported.
    """
    name = name or properties.as_given(RECORD_PUBLISHER)
    made = registry.publishers.get(name, RECORD_PUBLISHER.key)
    if not issubclass(made, RecordPublisherFactory):
        reason = f"{what} needs positions, but a queue has none"
        valid = "POLLING or EFO, which read the queue's stream"
        if _is_own_queue(made):
            valid = "the name of a publisher that reads shards"
        raise ConfigurationError(RECORD_PUBLISHER.key, name, valid, reason=reason)
    return made


def build_dead_letter_sink(registry: Registry, properties: Properties) -> Sink | None:
    """Return the sink of `flink.deadletter.sink`, or None if the policy for bad records is not DEAD_LETTER.

    It gets the job's properties with two changes: its settings are the properties under `flink.deadletter.` instead of `flink.sink.`, and
    its job name has the suffix " dead letters".

    Raises: ConfigurationError if the sink is not set or unknown, or if one of its properties is invalid.
    """
    if properties.value(ON_BAD_RECORD) != "DEAD_LETTER":
        return None
    name = properties.value(DEAD_LETTER_SINK)
    if name is None:
        reason = f"{ON_BAD_RECORD.key}=DEAD_LETTER needs it"
        raise ConfigurationError(DEAD_LETTER_SINK.key, None, ", ".join(registry.sinks.names()), reason=reason)
    # An error about the name is raised as it is, unlike the errors of the sink.
    registry.sinks.get(name, DEAD_LETTER_SINK.key)
    own = dead_letter_properties(properties)
    if own.value(ARCHIVE):
        reason = "an archive must have all records of a shard, and dead letters are only some"
        raise ConfigurationError(ARCHIVE.key.replace("flink.sink", "flink.deadletter"), "true", "false", reason=reason)
    try:
        return registry.sinks.make(name, DEAD_LETTER_SINK.key, own)
    except ConfigurationError as error:
        typo = hint_of_misspelt(error.key, own) if error.value is None else ""
        raise dead_letter_sink_error(error, typo) from None


def check_places(properties: Properties, sink: Sink, dead_letters: Sink | None) -> None:
    """Check that the job writes its dead letters to another place than its rows.

    Raises: ConfigurationError if both sinks have the same destination. Commands would take rows for dead letters, and drop them.
    """
    if type(sink) is not type(dead_letters) or dead_letters is None:
        return
    place = destination_of(sink)
    # The name of a class alone says nothing about the place.
    is_named = place not in {each.__name__ for each in type(sink).__mro__}
    if is_named and place == destination_of(dead_letters):
        reason = f"the job's rows and its dead letters would both be in {place}, and nothing could tell them apart"
        name = properties.value(DEAD_LETTER_SINK)
        valid = f"another place (properties {DEAD_LETTER.key}{(name or '').lower()}.*)"
        raise ConfigurationError(DEAD_LETTER_SINK.key, name, valid, reason=reason)


def dead_letter_properties(properties: Properties) -> Properties:
    """Return the properties for the dead-letter sink. It gets no schema, because the schema describes the values of the job."""
    job = properties.value(JOB_NAME)
    own = properties.with_prefix(DEAD_LETTER).items()
    settings = {SINK_KEY_PREFIX + key: value for key, value in own if key != "sink"}
    # Settings of the job's own sink are left out, because both sinks may be of the same kind.
    others = {key: value for key, value in properties.items() if not key.lower().startswith(SINK_KEY_PREFIX)}
    own_name = None if job is None else f"{job} dead letters"
    return Properties({**others, **settings, SCHEMA.key: None, JOB_NAME.key: own_name})


def build_store(registry: Registry, properties: Properties) -> ConditionalStore | None:
    """Return the store for the scheme of `flink.state.uri`, or None without a URI. Raises: ConfigurationError if the URI is invalid."""
    uri = properties.value(STATE_URI)
    return None if uri is None else conditional_store_of(uri, STATE_URI.key, properties, registry)


def build_metrics_exporters(registry: Registry, properties: Properties) -> list[MetricsExporter]:
    """Return the exporters of `flink.metrics.exporters`, or [] if it is not set.

    Raises: ConfigurationError if a name is unknown, or if a property of an exporter is invalid.
    """
    names = [name.strip() for name in (properties.value(METRICS_EXPORTERS) or "").split(",")]
    table, key = registry.metrics_exporters, METRICS_EXPORTERS.key
    # A class that is named twice, even in two spellings, is made once.
    chosen = {table.get(name, key): name for name in reversed(names) if name}
    return [table.make(name, key, properties) for name in reversed(chosen.values())]


def build_deserializer(registry: Registry, properties: Properties) -> Deserializer:
    """Return the deserializer that `flink.deserializer` names: by a registered name, or as `module:name` of a type or a function.

    If `flink.deserializer.schema` is set, the values are rows of that schema. They are decoded from JSON unless `flink.deserializer` names
    another format.

    Raises: ConfigurationError if the deserializer is unknown, cannot be imported or cannot be used, or if the schema is not valid for it.
    """
    name = properties.value(DESERIALIZER) or ""
    if (rows := schema_type(properties)) is not None:
        return _with_schema(registry, properties, rows)
    # A name with a dot but without a colon is a mistyped `module:name`, unless a plugin registered such a name.
    if ":" in name or ("." in name and name not in registry.deserializers.names()):
        valid = f"module:name, of {VALID_DESERIALIZER}"
        try:
            return deserializer_of(imported_object(properties, DESERIALIZER, valid))
        except ConfigurationError as error:
            if error.key == DESERIALIZER.key:
                raise
            raise ConfigurationError(DESERIALIZER.key, name, valid, reason=error.reason) from error
    made: Deserializer = registry.deserializers.make(name, DESERIALIZER.key, properties)
    _check_deserializer(name, made)
    return made


def _check_deserializer(name: str, made: Any) -> None:
    """Check the methods and the attribute `makes` of a deserializer that a plugin has registered.

    Raises: PluginError if a method is missing or has other parameters, or if `makes` is not a type.
    """
    for method, define in (("values", "def values(self, batch)"), ("prepare", "async def prepare(self, batch)")):
        found = getattr(made, method, None)
        if method == "values" and not callable(found):
            raise PluginError(f"the deserializer '{name}', {repr_of(made)}, has no method `values`: write `{define}`")
        if callable(found) and not can_take(found, 1):
            raise PluginError(f"`{type(made).__name__}.{method}` cannot be called with a batch: write `{define}`")
    makes = getattr(made, "makes", None)
    is_type = (
        isinstance(makes, type | TypeVar | NewType) or get_origin(makes) is not None or hasattr(makes, "__value__")
    )
    if not is_type and makes is not None and makes is not Any:  # A sink that makes columns of it would be blamed.
        raise PluginError(
            f"`{type(made).__name__}.makes` is {repr_of(makes)}, which is not a type that a value can have"
        )


def _with_schema(registry: Registry, properties: Properties, rows: Any) -> Deserializer:
    name = (properties.value(DESERIALIZER) or "").lower() if properties.is_set(DESERIALIZER) else "json"
    if name == "json":
        return InferredJson(properties) if rows is InferColumns else Json(rows)
    if rows is InferColumns:
        reason = "columns can only be inferred from JSON; name the columns"
        raise ConfigurationError.conflict(SCHEMA.key, f"{DESERIALIZER.key}={name}", value="INFER", reason=reason)
    if name in ("bytes", "text", "protobuf") or ":" in name:
        reason = "that deserializer makes values of its own type"
        raise ConfigurationError.conflict(SCHEMA.key, f"{DESERIALIZER.key}={name}", reason=reason)
    return ConvertedValues(registry.deserializers.make(name, DESERIALIZER.key, properties), rows)


def watermark_strategy_factory(registry: Registry, properties: Properties) -> Callable[[], WatermarkStrategy]:
    """Return a function that makes a new strategy, one for each shard. `flink.watermark.strategy` names its class.

    Raises: ConfigurationError if the name is unknown.
    """
    name = properties.value(WATERMARK_STRATEGY) or ""
    registry.watermark_strategies.get(name, WATERMARK_STRATEGY.key)
    return lambda: registry.watermark_strategies.make(name, WATERMARK_STRATEGY.key, properties)
