"""Which state store a URI names."""

from __future__ import annotations

from urllib.parse import urlparse

from ..fetcher.state_store import StateStore
from ..publishers.errors import ConfigurationError
from ..publishers.properties import Properties
from ..publishers.property_table import STATE_URI
from .registry import Registry


def state_store_of(registry: Registry, properties: Properties) -> StateStore:
    """The store that `flink.state.uri` names: a path or file:// is FILE, any other scheme is the registered name.

    Raises: ConfigurationError when it is not set or no store of that name is installed.
    """
    uri = properties.value(STATE_URI)
    if not uri:
        raise ConfigurationError(STATE_URI.key, None, "a path or a registered store's URI")
    made = registry.state_stores.get(urlparse(uri).scheme or "FILE", STATE_URI.key)
    return made(properties)  # type: ignore[call-arg]
