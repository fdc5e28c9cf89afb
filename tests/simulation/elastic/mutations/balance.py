"""Without one of the rules about how shards are shared by load (E6)."""

from __future__ import annotations

from recordpublisher.fetcher.leases import planning as view_module
from recordpublisher.fetcher.leases.planning import RATE_SECONDS, LoadRate, StatedLoadLevels

from .patches import Patches


def loads_are_not_stated() -> Patches:
    """E6: shards are shared by number."""
    return [(StatedLoadLevels, "state", lambda self, owned, loads: {})]


def loads_do_not_count() -> Patches:
    """E6: each shard is as heavy as any other to the plan."""
    return [(view_module, "weight", lambda level: 1_000)]


def loads_are_averages() -> Patches:
    """E6: a load is the average since the lease began."""

    def average(self: LoadRate) -> float | None:
        seconds = self._observed - self._began
        return self._bytes / seconds if seconds > RATE_SECONDS else None

    return [(LoadRate, "bytes_per_second", property(average))]


BALANCE = (loads_are_not_stated, loads_do_not_count, loads_are_averages)
