"""What the properties say: whether each has an effect, and whether the plugins that they name are installed."""

from __future__ import annotations

import warnings
from typing import Any

from recordpublisher.plugins.host.registry import NameTable, Registry
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties import table
from recordpublisher.publishers.properties.properties import Properties, Property

from .findings import Finding, examine


async def settings_findings(registry: Registry, properties: Properties) -> list[Finding]:
    """The properties, also those that plugins of the registry declare, and the plugins that they name beside sink and store, which have
    checks of their own."""
    return [
        await examine("properties", lambda: _properties(properties)),
        await examine("plugins", lambda: _plugins(registry, properties)),
    ]


def _properties(properties: Properties) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        properties.check()
    if caught:
        raise RecordPublisherError("; ".join(str(each.message) for each in caught))
    return "valid, and each has an effect"


def _plugins(registry: Registry, properties: Properties) -> str:
    named: tuple[tuple[NameTable[Any], Property[Any]], ...] = (
        (registry.publishers, table.RECORD_PUBLISHER),
        (registry.trackers, table.TRACKER),
        (registry.deserializers, table.DESERIALIZER),
        (registry.watermark_strategies, table.WATERMARK_STRATEGY),
        (registry.shard_assigners, table.SHARD_ASSIGNER),
    )
    for plugins, key in named:
        plugins.get(properties.value(key), key.key)
    return ", ".join(properties.value(key) for _, key in named)
