"""The state of each shard, as the lease table and the positions of workers have it. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from recordpublisher.fetcher.shards.shard_state import ShardState

from .group_store import PositionKey, Positions
from .lease_table import AloneOwner, LeaseTable


def alone_states(positions: Positions, alone: AloneOwner) -> dict[str, ShardState]:
    """Return the state of every shard of a job that runs alone, from the positions of its worker.

    Positions of another epoch are of a take that did not take effect.
    """
    return {key.shard: stored.state for key, stored in positions.items() if key.epoch == alone.epoch}


def states_of(table: LeaseTable, positions: Mapping[str, Positions]) -> tuple[dict[str, ShardState], list[str]]:
    """Return the state of each shard of the table, and the shards whose state was not found.

    - `positions`: the stored positions of each owner.
    """
    states: dict[str, ShardState] = {}
    missing: list[str] = []
    for shard, lease in table.leases.items():
        if lease.ended:
            states[shard] = ShardState(table.start, ended=True, watermark=lease.watermark, seen_ms=lease.seen_ms)
        elif lease.owner is None:
            states[shard] = replace(table.initial_state(shard), waiting=not table.can_be_read(shard))
        elif stored := positions.get(lease.owner, {}).get(PositionKey(shard, lease.epoch)):
            states[shard] = stored.state
        else:
            missing.append(shard)
    return states, missing
