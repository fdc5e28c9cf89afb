"""Patches that remove rules of shards and state, one each (S2, S3, S5, P3)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from recordpublisher.fetcher import startup
from recordpublisher.fetcher.checkpoints import shard_starts as initial_states
from recordpublisher.fetcher.checkpoints import shard_starts as restored_listing
from recordpublisher.fetcher.shard_ownership import FixedOwnership
from recordpublisher.fetcher.shards import shard_entry, shard_table
from recordpublisher.fetcher.shards.discovery import MissingShards, OwnedShards, ShardDiscovery
from recordpublisher.publishers.positions import StartingPosition

from .patches import Patches, nothing, replace_attribute


def failed_discovery_never_ends_a_job() -> Patches:
    async def list_stream(self: Any, stream: str, on_listing: Any) -> None:
        await on_listing(stream, await self._lister._client.list_shards(self._lister._names[stream]))

    return [replace_attribute(ShardDiscovery, "_list", list_stream)]


def child_shards_are_used_at_once() -> Patches:
    return [replace_attribute(FixedOwnership, "add_children", nothing)]


def parents_come_before_children() -> Patches:
    return [replace_attribute(shard_table.ShardTable, "parents_finished", lambda self, shard: True)]


def a_waiting_shard_does_not_mean_finished_parents() -> Patches:
    confirmed = vars(shard_entry.ShardEntry)["snapshot_state"].fget
    return [
        replace_attribute(
            shard_entry.ShardEntry, "snapshot_state", property(lambda self: replace(confirmed(self), waiting=False))
        )
    ]


def other_workers_discover_children_by_listing() -> Patches:
    async def run(self: Any, on_listing: Any) -> None:
        await asyncio.get_running_loop().create_future()

    return [replace_attribute(ShardDiscovery, "run", run)]


def latest_is_pinned_once_for_the_job() -> Patches:
    pinned = startup._pinned_ms

    async def pinned_again(restored: Any, parts: Any) -> Any:
        return await pinned(replace(restored, pinned_ms=None), parts)

    def from_now(listed: Any, restored: Any, starts: Any) -> Any:
        states, start = initial_states.initial_states(listed, restored, starts), starts.default
        return {key: replace(state, start=start) if state.position is None else state for key, state in states.items()}

    return [
        replace_attribute(startup, "_pinned_ms", pinned_again),
        replace_attribute(startup, "initial_states", from_now),
    ]


def found_shards_are_read_from_their_beginning() -> Patches:
    add_new = OwnedShards.add_new

    def from_the_tip(self: OwnedShards, shards: Any) -> None:
        with patch.object(StartingPosition, "trim_horizon", StartingPosition.latest):
            add_new(self, shards)

    return [replace_attribute(OwnedShards, "add_new", from_the_tip)]


def a_shard_that_a_listing_lacks_is_asked_for() -> Patches:
    return [replace_attribute(MissingShards, "is_expired", lambda self, key: True)]


def an_old_listing_is_requested_again_at_the_start() -> Patches:
    return [replace_attribute(restored_listing, "MAX_LISTINGS", 1)]
