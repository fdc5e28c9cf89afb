"""What the properties say: whether each has an effect, and whether the plugins that they name are installed."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

from recordpublisher.plugins.host.registry import NameTable, Registry
from recordpublisher.publishers.base import RecordPublisherFactory
from recordpublisher.publishers.errors import ConfigurationError, PluginError, RecordPublisherError
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.groups.discovery_and_state import SHARD_ASSIGNER
from recordpublisher.publishers.properties.groups.publisher import RECORD_PUBLISHER
from recordpublisher.publishers.properties.groups.values_and_time import DESERIALIZER, TRACKER, WATERMARK_STRATEGY
from recordpublisher.publishers.properties.properties import Properties

from .findings import Finding, examine


async def settings_findings(registry: Registry, properties: Properties, streams: list[str]) -> list[Finding]:
    """The properties, also those that plugins of the registry declare, and the plugins that they name beside sink and store, which have
    checks of their own. The publisher is asked whether it can work with the properties."""
    return [
        await examine("properties", lambda: _properties(properties, streams, registry)),
        await examine("plugins", lambda: _plugins(registry, properties)),
    ]


def _properties(properties: Properties, streams: list[str], registry: Registry) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        properties.check()
    with suppress(PluginError):  # that it cannot be imported is another finding
        if (publisher := _publisher(registry, properties)) is not None:
            publisher.check(properties, streams)
    if caught:
        raise RecordPublisherError("; ".join(str(each.message) for each in caught))
    return "valid, and each has an effect"


def _publisher(registry: Registry, properties: Properties) -> type[RecordPublisherFactory] | None:
    try:
        return registry.publishers.get(properties.value(RECORD_PUBLISHER), RECORD_PUBLISHER.key)
    except ConfigurationError:  # it is not installed, which is another finding
        return None


def _plugins(registry: Registry, properties: Properties) -> str:
    named: tuple[tuple[NameTable[Any], Property[Any]], ...] = (
        (registry.publishers, RECORD_PUBLISHER),
        (registry.trackers, TRACKER),
        (registry.deserializers, DESERIALIZER),
        (registry.watermark_strategies, WATERMARK_STRATEGY),
        (registry.shard_assigners, SHARD_ASSIGNER),
    )
    for plugins, key in named:
        plugins.get(properties.value(key), key.key)
    return ", ".join(properties.value(key) for _, key in named)
