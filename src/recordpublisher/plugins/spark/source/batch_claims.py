"""The claims of one batch, put together."""

from __future__ import annotations

from dataclasses import dataclass, field

from recordpublisher.plugins.stores.ports import BatchId, ClaimStore

from .batch_offset import Offset, ShardEntry
from .shard_claims import Claim, ShardClaim
from .shard_grouping import groups


def claim_name(group: int) -> str:
    """The name under which a task claims."""
    return f"group-{group:05d}"


def identity(offset: Offset) -> BatchId:
    """Under which batch the tasks of an offset claim."""
    return BatchId(offset.query, offset.batch, offset.plan)


@dataclass(slots=True)
class Claimed:
    """What a batch's claims say: by shard, which tasks' claims are gone, when each task began to read (epoch ms), and when the last
    fan-out read began (0: none did)."""

    shards: dict[str, ShardClaim] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    subscribed_ms: int = 0
    began_ms: list[int] = field(default_factory=list)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing came and nothing more can be expected at once."""
        return all(not claim.records and (claim.at_tip or claim.past_event_time) for claim in self.shards.values())

    @property
    def is_unread(self) -> bool:
        """Whether no task at all has claimed: the batch was never read (a sink without an action)."""
        return bool(self.missing) and not self.shards


def load_claims(store: ClaimStore, offset: Offset) -> Claimed:
    """The claims of an offset's batch. A missing or foreign one leaves its shards where they were: read again, not lost."""
    claimed = Claimed()
    if offset.batch == 0:
        return claimed
    stored = store.load(identity(offset))
    for number, group in enumerate(groups(offset)):
        claim = _claim_of(group, stored.get(claim_name(number)))
        if claim is None:
            claimed.missing.append(number)
            continue
        claimed.shards |= claim.shards
        began = max(shard.began_ms for shard in claim.shards.values())
        claimed.began_ms.append(began)
        if claim.subscribed:
            claimed.subscribed_ms = max(claimed.subscribed_ms, began)
    return claimed


def _claim_of(group: list[ShardEntry], stored: bytes | None) -> Claim | None:
    if stored is None:
        return None
    claim = Claim.from_bytes(stored)
    starts = {entry.key: entry.state for entry in group}
    return claim if {key: shard.start for key, shard in claim.shards.items()} == starts else None
