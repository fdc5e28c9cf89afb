"""Loads all claims of one batch from the claim store, and checks that the store is the right one."""

import uuid
from dataclasses import dataclass, field

from recordpublisher.plugins.stores.read_claim_store import BatchId, ReadClaimStore, read_claim_store_of
from recordpublisher.publishers.errors import StateError

from ..options.spark_options import SparkOptions
from ..outages import with_short_retries
from ..process.python_worker import worker_loop
from .claim import ReadClaim, ShardRead
from .offset import BatchOffset, ShardOffset


def claim_name(group: int) -> str:
    """Return the name of a task's claim within its batch."""
    return f"group-{group:05d}"


def claim_store(options: SparkOptions) -> ReadClaimStore:
    """Return the store of a query's claims: one for each process, with a client that stays open."""
    loop = worker_loop()
    return loop.cached(
        ("claims", options.metadata_location, *sorted(options.properties.items())),
        lambda: read_claim_store_of(
            options.metadata_location, with_short_retries(options.properties), loop.run, options.metadata_key
        ),
    )


def batch_id(offset: BatchOffset) -> BatchId:
    """Return the batch under which the tasks of an offset store their claims."""
    return BatchId(offset.query, offset.batch, offset.plan)


@dataclass(slots=True)
class BatchClaims:
    """The claims of a batch.

    - `shards`: the read of each shard, by `Shard.key`.
    - `missing`: the numbers of the tasks without a claim.
    - `began_ms`: when each task began to read (epoch ms).
    - `subscribed_ms`: when the last fan-out read began (epoch ms); 0 without one.
    - `has_token`: whether the store has the token of the batch's plan.
    """

    shards: dict[str, ShardRead] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    subscribed_ms: int = 0
    began_ms: list[int] = field(default_factory=list)
    has_token: bool = False

    @property
    def is_quiet(self) -> bool:
        """Whether the batch has no records."""
        return not any(read.records for read in self.shards.values())

    @property
    def is_at_end(self) -> bool:
        """Whether every shard was read to its tip or to the emit limit."""
        return all(read.is_at_end for read in self.shards.values())

    @property
    def is_unread(self) -> bool:
        """Whether no task has stored a claim: the sink did not read the batch."""
        return bool(self.missing) and not self.shards


def load_batch_claims(store: ReadClaimStore, offset: BatchOffset) -> BatchClaims:
    """Return the claims of an offset's batch.

    Shards without a claim, or whose claim is of another plan, are read again by the next batch.
    """
    claims = BatchClaims()
    if offset.batch == 0:
        return claims
    groups = offset.tasks()
    stored = store.load(batch_id(offset), map(claim_name, range(len(groups))), offset.store_token)
    claims.has_token = stored.has_marker
    for number, group in enumerate(groups):
        claim = _claim_of(group, stored.claims.get(claim_name(number)))
        if claim is None:
            claims.missing.append(number)
            continue
        claims.shards |= claim.shards
        claims.began_ms.append(claim.began_ms)
        if claim.subscribed:
            claims.subscribed_ms = max(claims.subscribed_ms, claim.began_ms)
    return claims


def _claim_of(group: list[ShardOffset], stored: bytes | None) -> ReadClaim | None:
    if stored is None:
        return None
    claim = ReadClaim.from_bytes(stored)
    return claim if claim.is_of({entry.key: entry.state for entry in group}) else None


def lost_claims_error(store: ReadClaimStore, offset: BatchOffset) -> StateError:
    """Return the error that ends a query if its store is not the one with which the offset's batch was planned."""
    return StateError(
        f"{store.key} {store.place} has no claims of this query ({offset.query}), which is at batch {offset.batch}; they were deleted, or "
        f"are elsewhere. Use the former place, or set onMetadataLoss=REPLAY: nothing is lost, but all records of that batch come again, "
        "even if the sink has them"
    )


class StoreVisibilityCheck:
    """Checks that driver, tasks and later runs of a query use the same claim store, by a token that is written into it.

    Owns the token of each query. A query keeps its token across restarts as long as the store has it.
    """

    def __init__(self, store: ReadClaimStore) -> None:
        self._store = store
        self._tokens: dict[str, str] = {}
        self._is_location_checked = False

    def check_location(self) -> None:
        """Check the location once in each process. Raises: ConfigurationError if it cannot hold claims."""
        if not self._is_location_checked:
            self._store.write_marker("location-check", "driver")
            self._is_location_checked = True

    def is_planning_store(self, offset: BatchOffset) -> bool:
        """Return whether the offset's batch was planned with this store, which may be an empty replacement."""
        return bool(offset.store_token) and self._store.has_marker(offset.query, offset.store_token)

    def write_token(self, offset: BatchOffset, *, is_there: bool = False) -> str:
        """Write the query's token into the store, unless it is there, and return it.

        - `is_there`: whether the offset's token has just been seen in the store.

        Raises: ConfigurationError if the location cannot hold claims.
        """
        if is_there:
            return offset.store_token
        if offset.query not in self._tokens:
            self._tokens[offset.query] = offset.store_token if self.is_planning_store(offset) else uuid.uuid4().hex[:12]
        token = self._tokens[offset.query]
        if not self._store.has_marker(offset.query, token):  # The token may expire in a bucket whose objects expire.
            self._store.write_marker(offset.query, token)
        return token
