"""Builds the job of a queue from properties. Settings that need positions are refused with a sentence that says what to do."""

from typing import Any

from recordpublisher.consumer.deserialization import Deserializer
from recordpublisher.fetcher.alarms import AlarmListener
from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.base import QueueSource
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.groups.job import (
    JOB_WORKERS,
    LOOKAHEAD,
    MAX_LAG,
    STATE_URI,
    TIMESTAMP_FIELD,
)
from recordpublisher.publishers.properties.groups.reading import RECORD_PUBLISHER
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.queues.job import QueueJob, QueueJobParts, QueueSettings

from ..host.build_from_properties import build_dead_letter_sink, build_sink, build_source
from ..host.registry import Registry
from ..tracing.traces import traced_calls
from .batch_decoration import batch_decorator_factory, made_type
from .stream_names import StreamNames

_NO_WATERMARKS = (
    "a queue keeps no order, so it has no watermarks; leave it out, and take the time from the record's value"
)
_REFUSED: dict[Property[Any], str] = {
    STATE_URI: "nothing is stored: the queue keeps what is not acknowledged; leave it out",
    LOOKAHEAD: _NO_WATERMARKS,
    MAX_LAG: _NO_WATERMARKS,
    TIMESTAMP_FIELD: _NO_WATERMARKS,
}
_REFUSED_ARGUMENTS = {
    "restore": "a queue has no positions to restore; leave it out",
    "state_store": "nothing is stored: the queue keeps what is not acknowledged; leave it out",
    "timestamp_assigner": _NO_WATERMARKS,
    "watermark_assigner": _NO_WATERMARKS,
    "streams": "a function of streams is for sources with positions; give their names",
}


def build_queue_job(
    source: type[QueueSource],
    registry: Registry,
    given: Properties,
    names: StreamNames,
    *,
    sink: Sink | None,
    values: Deserializer[Any],
    on_alarm: AlarmListener | None,
    clock: Clock,
    **refused: object,
) -> QueueJob:
    """Build the parts of the job. Nothing is opened.

    - `refused`: arguments that need positions; they must be None or empty.

    Raises: ConfigurationError if a setting is invalid, or needs positions.
    """
    _check_without_positions(given, streams=names.function, **refused)
    (stream,) = names.given or ("",)
    made = build_source(registry, given, source)
    made.prepare(list(names.given.values()))
    return QueueJob(
        QueueJobParts(
            source=made,
            stream=stream,
            sink=build_sink(registry, given) if sink is None else sink,
            decorator_for=batch_decorator_factory(registry, given, values),
            settings=QueueSettings.of(given),
            clock=clock,
            dead_letters=build_dead_letter_sink(registry, given),
            on_alarm=on_alarm,
            traced=traced_calls(given, clock),
            value_type=made_type(values),
        )
    )


def _check_without_positions(properties: Properties, **arguments: object) -> None:
    """Check that no property or argument is given that the job of a queue cannot have. Raises: ConfigurationError if one is given."""
    for declared, reason in _REFUSED.items():
        if (value := properties.value(declared)) is not None:
            raise ConfigurationError(declared.key, value, reason=reason)
    if properties.value(JOB_WORKERS) == "GROUP":
        reason = "processes share a queue without a group; start as many as are needed"
        queue = f"{RECORD_PUBLISHER.key}={properties.as_given(RECORD_PUBLISHER)}"
        raise ConfigurationError.conflict(JOB_WORKERS.key, queue, value="GROUP", reason=reason)
    for name, value in arguments.items():
        if value is not None and value != ():
            raise ConfigurationError(name, repr(value)[:200], reason=_REFUSED_ARGUMENTS[name])
