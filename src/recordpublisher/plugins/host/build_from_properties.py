"""The sinks that the properties name: the job's own, and the one for dead letters (S7)."""

from __future__ import annotations

import weakref
from urllib.parse import urlsplit

from recordpublisher.fetcher.checkpoints.store import StateStore
from recordpublisher.fetcher.coordination.in_process_tracker import InProcessTracker
from recordpublisher.fetcher.coordination.watermark_tracker import WatermarkTracker
from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties import table
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import (
    DEAD_LETTER,
    DEAD_LETTER_SINK,
    JOB_NAME,
    ON_POISON,
    SINK,
    STATE_URI,
)

from .registry import Registry

_SETTINGS = "flink.sink."


def build_sink(registry: Registry, properties: Properties) -> Sink:
    """The sink at `flink.sink`, built with the properties. Raises: ConfigurationError."""
    name = properties.value(SINK)
    if name is None:
        raise ConfigurationError(SINK.key, None, ", ".join(registry.sinks.names()))
    return registry.sinks.get(name, SINK.key)(properties)  # type: ignore[call-arg]


def build_dead_letter_sink(registry: Registry, properties: Properties) -> Sink | None:
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


_STORES = {"": "FILE", "sqlite": "SQL", "postgresql": "SQL", "postgres": "SQL"}


def build_state_store(registry: Registry, properties: Properties) -> StateStore | None:
    """The store, built with the properties; None when no URI is set. Raises: ConfigurationError."""
    uri = properties.value(STATE_URI)
    if uri is None:
        return None
    scheme = urlsplit(uri).scheme.partition("+")[0].lower()
    made = registry.state_stores.get(_STORES.get(scheme, scheme), STATE_URI.key)
    return made(properties)  # type: ignore[call-arg]


_SHARED: weakref.WeakValueDictionary[tuple[object, ...], InProcessTracker] = weakref.WeakValueDictionary()
"""Trackers live as long as a fetcher of their job does."""


def build_tracker(
    registry: Registry,
    properties: Properties,
    streams: tuple[str, ...],
    parallelism: int,
    clock: Clock | None = None,
) -> WatermarkTracker:
    """The tracker that the properties name; one for many processes hears the streams' names where no group is set.

    Raises: ConfigurationError for an unknown name or what the tracker cannot do without (C2).
    """
    made = registry.trackers.get(properties.value(table.TRACKER) or "", table.TRACKER.key)
    group = properties.value(table.WATERMARK_GROUP)
    if made is not InProcessTracker:
        known = properties if group is not None else properties.merged({table.WATERMARK_GROUP.key: ",".join(streams)})
        return made(known)  # type: ignore[call-arg]
    timeout_ms = max(properties.value(table.TRACKER_TIMEOUT), 3 * properties.value(table.SYNC_INTERVAL))
    tracker = InProcessTracker(parallelism=parallelism, clock=clock, timeout_ms=timeout_ms)
    if group is None and parallelism == 1:
        return tracker
    job = (group,) if group is not None else (streams, parallelism, frozenset(properties.items()))
    return _SHARED.setdefault(job, tracker)
