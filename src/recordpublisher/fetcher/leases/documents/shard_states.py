"""The state of each shard of a group, from its lease table and what the owners have stored. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from recordpublisher.fetcher.shards.shard_state import ShardState

from .lease_table import LeaseTable
from .position_part import PositionKey, Positions


def states_of(table: LeaseTable, positions: Mapping[str, Positions]) -> tuple[dict[str, ShardState], list[str]]:
    """The state of each shard of the table, and the shards whose state was not found. `positions`: by owner."""
    states: dict[str, ShardState] = {}
    missing: list[str] = []
    for shard, lease in table.leases.items():
        if lease.ended:
            states[shard] = ShardState(table.start, ended=True, watermark=lease.watermark)
        elif lease.owner is None:
            states[shard] = replace(table.initial_state(shard), waiting=not table.can_be_read(shard))
        elif stored := positions.get(lease.owner, {}).get(PositionKey(shard, lease.epoch)):
            states[shard] = stored.state
        else:
            missing.append(shard)
    return states, missing
