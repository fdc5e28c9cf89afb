"""Without one of the rules about the watermark of the group (E8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from recordpublisher.fetcher.leases import group_observer as observer_module
from recordpublisher.fetcher.leases import worker as worker_module
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.fetcher.leases.group_watermark import WorkerWatermark, group_watermark
from recordpublisher.fetcher.leases.owned_leases import OwnedLeases
from recordpublisher.fetcher.leases.planning import GroupView

from .patches import Patches


def records_may_be_from_before_the_table() -> Patches:
    """E8: no read of the records is consistent, so an owner's record may be from before it counted what it has."""
    read = GroupStore.read_records

    async def inconsistently(self: GroupStore, *, consistent: bool = False) -> Any:
        return await read(self)

    return [(GroupStore, "read_records", inconsistently)]


def older_records_replace_newer_ones() -> Patches:
    """E8: a read that is older than the one before is believed."""
    return [(observer_module, "_newer", lambda record, known: record)]


def prepared_shards_do_not_count() -> Patches:
    """E8: the taker counts a shard only when it has it."""
    return [(OwnedLeases, "positions_besides", lambda self, read: [])]


def given_shards_do_not_count() -> Patches:
    """E8: the giver does not count a shard any more once it sees that another has it."""
    return [(WorkerWatermark, "keep", lambda self, shard, watermark, now: None)]


def shards_without_owner_do_not_count() -> Patches:
    """E8: nobody stands for a child until it is taken."""
    return [(worker_module, "group_watermark", _group_watermark_without("shards"))]


def sealed_workers_do_not_count() -> Patches:
    """E8: a sealed worker does not hold the watermark, although its shards will be read on from its positions."""
    return [(worker_module, "group_watermark", _group_watermark_without("workers"))]


def joiners_begin_anew() -> Patches:
    """E8: a worker does not go on from the highest value that others know."""

    def own_view_only(view: GroupView, known: int | None, excluded: frozenset[str] = frozenset()) -> int | None:
        records = {name: msgspec.structs.replace(record, group_watermark=None) for name, record in view.records.items()}
        return group_watermark(replace(view, records=records), None, excluded)

    return [(worker_module, "group_watermark", own_view_only)]


def _group_watermark_without(what: str) -> Any:
    def without(view: GroupView, known: int | None, excluded: frozenset[str] = frozenset()) -> int | None:
        if what == "workers":
            return group_watermark(view, known, frozenset(view.records))
        owned = {shard: lease for shard, lease in view.table.leases.items() if lease.owner is not None}
        return group_watermark(replace(view, table=replace(view.table, leases=owned)), known, excluded)

    return without


WATERMARKS = [
    records_may_be_from_before_the_table,
    older_records_replace_newer_ones,
    prepared_shards_do_not_count,
    given_shards_do_not_count,
    shards_without_owner_do_not_count,
    sealed_workers_do_not_count,
    joiners_begin_anew,
]
