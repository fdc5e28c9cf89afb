"""Which subtasks of this process share an in-process tracker: those of one job, or of one `flink.watermark.group` (W6)."""

from __future__ import annotations

import weakref

from ..fetcher.global_watermark import InProcessTracker, WatermarkTracker
from ..publishers import property_table as table
from ..publishers.errors import ConfigurationError
from ..publishers.properties import Properties
from .registry import Registry

_SHARED: weakref.WeakValueDictionary[tuple[object, ...], InProcessTracker] = weakref.WeakValueDictionary()
"""Trackers live as long as a fetcher of their job does."""


def tracker_of(
    registry: Registry, properties: Properties, streams: tuple[str, ...], parallelism: int
) -> WatermarkTracker:
    """The tracker that the properties name. Raises: ConfigurationError for an unknown name or TCP without an address (C2)."""
    name = properties.value(table.TRACKER) or ""
    made = registry.trackers.get(name, table.TRACKER.key)
    if name.upper() == "TCP" and not properties.is_set(table.TRACKER_ADDRESS):
        raise ConfigurationError(table.TRACKER_ADDRESS.key, None, "host:port of the tracker")
    if made is not InProcessTracker:
        return made(properties)  # type: ignore[call-arg]
    group = properties.value(table.WATERMARK_GROUP)
    if group is None and parallelism == 1:
        return InProcessTracker()
    job = (group,) if group is not None else (streams, parallelism, frozenset(properties.items()))
    return _SHARED.setdefault(job, InProcessTracker(parallelism=parallelism))
