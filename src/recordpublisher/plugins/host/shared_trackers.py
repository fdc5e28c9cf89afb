"""Which subtasks of this process share an in-process tracker: those of one job, or of one `flink.watermark.group` (W6)."""

from __future__ import annotations

import weakref

from recordpublisher.fetcher.coordination.in_process_tracker import InProcessTracker
from recordpublisher.fetcher.coordination.tracker import WatermarkTracker
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.properties import table
from recordpublisher.publishers.properties.properties import Properties

from .registry import Registry

_SHARED: weakref.WeakValueDictionary[tuple[object, ...], InProcessTracker] = weakref.WeakValueDictionary()
"""Trackers live as long as a fetcher of their job does."""


def tracker_of(
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
