"""The sinks that the properties name: the job's own, and the one for dead letters (S7)."""

from __future__ import annotations

from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import DEAD_LETTER, DEAD_LETTER_SINK, JOB_NAME, ON_POISON, SINK

from .registry import Registry

_SETTINGS = "flink.sink."


def sink_of(registry: Registry, properties: Properties) -> Sink:
    """The sink at `flink.sink`, built with the properties. Raises: ConfigurationError."""
    name = properties.value(SINK)
    if name is None:
        raise ConfigurationError(SINK.key, None, ", ".join(registry.sinks.names()))
    return registry.sinks.get(name, SINK.key)(properties)  # type: ignore[call-arg]


def dead_letters_of(registry: Registry, properties: Properties) -> Sink | None:
    """The dead-letter sink when the policy asks for one. Raises: ConfigurationError.

    It is built with the job's properties, those under `flink.deadletter.` in the place of the job's `flink.sink.`, and under a job name
    of its own.
    """
    if properties.value(ON_POISON) != "DEAD_LETTER":
        return None
    name = properties.value(DEAD_LETTER_SINK)
    if name is None:
        reason = f"needed by {ON_POISON.key}=DEAD_LETTER"
        raise ConfigurationError(DEAD_LETTER_SINK.key, None, ", ".join(registry.sinks.names()), reason=reason)
    made = registry.sinks.get(name, DEAD_LETTER_SINK.key)
    return made(_settings_of(properties))  # type: ignore[call-arg]


def _settings_of(properties: Properties) -> Properties:
    job = properties.value(JOB_NAME)
    own = {_SETTINGS + key: value for key, value in properties.with_prefix(DEAD_LETTER).items() if key != "sink"}
    others = {key: value for key, value in properties.items() if not key.lower().startswith(_SETTINGS)}
    return Properties({**others, **own, JOB_NAME.key: None if job is None else f"{job} dead letters"})
