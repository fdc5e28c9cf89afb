"""Finds settings that a job does not read, because they belong to a sink or another plugin that the job has not chosen."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.errors import PluginError, RecordPublisherError
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.job_properties import (
    DEAD_LETTER,
    DEAD_LETTER_SINK,
    DESERIALIZER,
    METRICS_EXPORTERS,
    ON_BAD_RECORD,
    SINK,
    WATERMARK_STRATEGY,
    OnBadRecord,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import RECORD_PUBLISHER
from recordpublisher.publishers.properties.sink_properties import PARQUET_COMPRESSION, PARQUET_ROW_GROUP, PARQUET_SORT

from .registry import NameTable, Registry

SHARED = {each.key: ("delta", "iceberg") for each in (PARQUET_COMPRESSION, PARQUET_ROW_GROUP, PARQUET_SORT)}
"""Properties that are named after one sink, with the other sinks that read them too."""
_BUNDLED = "recordpublisher.plugins.sinks."
Choice = tuple[NameTable[Any], Property[Any], str]
"""The names of one kind of plugin, the property that chooses one, and the prefix of keys that is followed by a plugin's name.

The prefix is empty if such keys name no plugin.
"""


def unread_settings(registry: Registry, properties: Properties, sink: Sink | None = None) -> list[str]:
    """Return a sentence for each setting of a plugin that the job has not chosen. Settings that no plugin has are not reported.

    - `sink`: the sink that the program has made, or None if a property names the sink.
    """
    chosen = properties if sink is None else properties.merged({SINK.key: None})
    told = [said for key in properties for said in _why_unread(registry, chosen, key)]
    beside = [said for said, _ in _settings_beside(registry, properties, sink)]
    return [*told, *beside, *unused_dead_letters(properties)]


def unread_at_start(registry: Registry, properties: Properties, sink: Sink | None) -> list[str]:
    """Return the sentences of `unread_settings` that are true whatever else the program does. They are logged at a start.

    The settings of other sinks are left out, because another job of the program may read the same properties.
    """
    beside = _settings_beside(registry, properties, sink)
    return [*(said for said, is_own in beside if is_own), *unused_dead_letters(properties)]


def unused_dead_letters(properties: Properties) -> list[str]:
    """Return a sentence if the job has a dead-letter sink and makes no dead letters."""
    policy = properties.value(ON_BAD_RECORD)
    if properties.value(DEAD_LETTER_SINK) is None or policy == OnBadRecord.DEAD_LETTER.name:
        return []
    return [
        f"{DEAD_LETTER_SINK.key} has no effect: {ON_BAD_RECORD.key} is {policy}; with DEAD_LETTER bad records go to that sink"
    ]


def _settings_beside(registry: Registry, properties: Properties, sink: Sink | None) -> list[tuple[str, bool]]:
    """Return a sentence for each sink setting that has no effect, because the program has made `sink` itself. Return with each whether the
    setting is for this kind of sink.

    Return nothing for a sink of the program or of another package. Such a sink may read any property. Leave out settings of the Kinesis
    sink, because a `Producer` of the program reads them.
    """
    kind, told = type(sink), []
    if not kind.__module__.startswith(_BUNDLED):
        return []
    for key in properties:
        reader = _named_in(key, "flink.sink.", registry.sinks)
        if reader is None or reader == "kinesis":
            continue
        with suppress(RecordPublisherError):  # Another finding reports a sink that cannot be imported.
            classes = [registry.sinks.get(name, SINK.key) for name in (reader, *SHARED.get(key.lower(), ()))]
            if isinstance(sink, tuple(classes)):
                continue
            # For example MapSink: the class that reads the properties is a subclass, of which the program makes no object.
            if issubclass(classes[0], kind):
                told.append(
                    (
                        f"{key} has no effect: the program makes the sink; pass it to {kind.__name__} as an argument",
                        True,
                    )
                )
            # A program may name this sink for commands, which cannot use the sink that the program makes.
            elif reader != (properties.value(SINK) or "").lower():
                told.append(
                    (
                        f"{key} has no effect: the program makes the sink, a {kind.__name__}; only {reader} reads it",
                        False,
                    )
                )
    return told


def _why_unread(registry: Registry, properties: Properties, key: str) -> Iterator[str]:
    choices: tuple[Choice, ...] = (
        (registry.sinks, SINK, "flink.sink."),
        (registry.sinks, DEAD_LETTER_SINK, DEAD_LETTER.key),
        (registry.metrics_exporters, METRICS_EXPORTERS, "flink.metrics."),
        (registry.publishers, RECORD_PUBLISHER, ""),
        (registry.watermark_strategies, WATERMARK_STRATEGY, ""),
        (registry.deserializers, DESERIALIZER, ""),
    )
    for table, choice, start in choices:
        chosen = properties.value(choice)
        if chosen is None and table is registry.sinks:
            continue
        given = [chosen]
        if (reader := _named_in(key, start, table)) is None:
            # The key does not say whether it is of the sink, which the program may make, or of the dead-letter sink.
            if table is registry.sinks and properties.value(SINK) is None:
                continue
            reader = _declaring(key, table)
            given = [properties.value(other) for of, other, _ in choices if of is table]
        names = [name.strip().lower() for each in given for name in (each or "").split(",")]
        if reader is None or _reads(table, names, reader, key):
            continue
        has = f"the {table.kind} is {chosen}" if chosen else f"{choice.key} is not set"
        others = SHARED.get(key.lower(), ())
        yield f"{key} has no effect: {has}; only " + (
            f"{', '.join((reader, *others))} read it" if others else f"{reader} reads it"
        )
        return


def _named_in(key: str, start: str, table: NameTable[Any]) -> str | None:
    """Return the name of the plugin that follows `start` in the key, or None if no plugin has that name."""
    if not start or not key.lower().startswith(start):
        return None
    name = key.lower().removeprefix(start).partition(".")[0]
    return next((claim.name for claim in table.claims() if claim.name.lower() == name), None)


def _declaring(key: str, table: NameTable[Any]) -> str | None:
    """Return the name of a plugin of another package whose module declares the key, or None."""
    for claim in table.claims():
        if claim.owner.plugin == "builtins":
            continue
        with suppress(PluginError):  # Another finding reports a plugin that cannot be imported.
            module = sys.modules.get(getattr(table.get(claim.name, ""), "__module__", ""))
            declared = (value for value in vars(module or object).values() if isinstance(value, Property))
            if any(key.lower() in (each.key.lower(), *map(str.lower, each.aliases)) for each in declared):
                return claim.name
    return None


def _reads(table: NameTable[Any], chosen: Iterable[str], reader: str, key: str) -> bool:
    """Return whether a chosen plugin reads the key: it is the reader, a subclass of it, or known to share the key."""
    for name in chosen:
        if name == reader.lower() or name in SHARED.get(key.lower(), ()):
            return True
        with suppress(RecordPublisherError, TypeError):  # Another finding reports such a name.
            if ":" in name or issubclass(table.get(name, ""), table.get(reader, "")):
                return True
    return False
