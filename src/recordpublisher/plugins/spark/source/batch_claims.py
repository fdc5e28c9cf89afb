"""The claims of one batch, put together."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from recordpublisher.plugins.stores.ports import BatchId, ClaimStore
from recordpublisher.publishers.errors import ConfigurationError

from .batch_offset import BatchOffset, ShardOffset
from .read_claim import ReadClaim, ShardReadRange
from .shard_grouping import task_groups


def claim_name(group: int) -> str:
    """The name under which a task claims."""
    return f"group-{group:05d}"


def batch_id(offset: BatchOffset) -> BatchId:
    """Under which batch the tasks of an offset claim."""
    return BatchId(offset.query, offset.batch, offset.plan)


@dataclass(slots=True)
class BatchClaims:
    """What a batch's claims say: by shard, which tasks' claims are gone, when each task began to read (epoch ms), and when the last
    fan-out read began (0: none did)."""

    shards: dict[str, ShardReadRange] = field(default_factory=dict)
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


def load_batch_claims(store: ClaimStore, offset: BatchOffset) -> BatchClaims:
    """The claims of an offset's batch. A missing or foreign one leaves its shards where they were: read again, not lost."""
    claimed = BatchClaims()
    if offset.batch == 0:
        return claimed
    stored = store.load(batch_id(offset))
    for number, group in enumerate(task_groups(offset)):
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


def _claim_of(group: list[ShardOffset], stored: bytes | None) -> ReadClaim | None:
    if stored is None:
        return None
    claim = ReadClaim.from_bytes(stored)
    starts = {entry.key: entry.state for entry in group}
    return claim if {key: shard.start for key, shard in claim.shards.items()} == starts else None


class StoreVisibilityCheck:
    """Owns the token of each query in one store; a query keeps its token over restarts as long as the store has it."""

    def __init__(self, store: ClaimStore) -> None:
        self._store = store
        self._tokens: dict[str, str] = {}

    def is_planning_store(self, offset: BatchOffset) -> bool:
        """Whether the store is the one in which the offset's batch was planned, and not an empty one in its place."""
        return bool(offset.store_token) and self._sees(offset.query, offset.store_token)

    def write_token(self, offset: BatchOffset) -> str:
        """The query's token, in the store from now on. Raises: ConfigurationError when the location cannot hold claims."""
        if offset.query not in self._tokens:
            self._tokens[offset.query] = offset.store_token if self.is_planning_store(offset) else uuid.uuid4().hex[:12]
        token = self._tokens[offset.query]
        self._store.plant_probe(offset.query, token)
        return token

    def _sees(self, query: str, token: str) -> bool:
        try:
            self._store.see_probe(query, token)
        except ConfigurationError:
            return False
        return True
