"""Which state store `flink.state.uri` means: its scheme is the store's name."""

from __future__ import annotations

from urllib.parse import urlsplit

from recordpublisher.fetcher.checkpoints.state_store import StateStore
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import STATE_URI

from .registry import Registry

_STORES = {"": "FILE", "sqlite": "SQL", "postgresql": "SQL", "postgres": "SQL"}


def state_store_of(registry: Registry, properties: Properties) -> StateStore | None:
    """The store, built with the properties; None when no URI is set. Raises: ConfigurationError."""
    uri = properties.value(STATE_URI)
    if uri is None:
        return None
    scheme = urlsplit(uri).scheme.partition("+")[0].lower()
    made = registry.state_stores.get(_STORES.get(scheme, scheme), STATE_URI.key)
    return made(properties)  # type: ignore[call-arg]
