"""A stream: its shards, which of them a hash key belongs to, and its retention."""

from base64 import b64encode
from bisect import bisect_right
from collections.abc import Sequence
from math import inf

import msgspec

from recordpublisher.publishers.service_limits import DEFAULT_RECORD_BYTES

from ..api_errors import in_use, not_found
from ..clock import Clock
from .consumers import CONSUMER_LIMIT, ConsumerTable
from .resharding import merge, split
from .shard import HashRange, Shard, canonical_id, hash_of, shard_id, uniform_ranges
from .tags import TagSet

Busy = tuple[str, int, int | None]
"""A status, the time until which the stream has it, and the time from which it shows its shards, or None for never (ms)."""
HOUR_MS = 3_600_000
DEFAULT_RETENTION_HOURS = 24


class Stream:
    """Owns its shards, their order by hash key, its consumers and its status, which follows the clock."""

    def __init__(
        self,
        arn: str,
        shard_count: int,
        clock: Clock,
        creating_ms: int = 0,
        consumer_delay_ms: int = 0,
        consumer_limit: int = CONSUMER_LIMIT,
    ) -> None:
        self.arn = arn
        self.name = arn.rpartition("/")[2]
        self.clock = clock
        self.created_ms = clock.now_ms()
        self.retention_hours = DEFAULT_RETENTION_HOURS
        self.max_record_bytes = DEFAULT_RECORD_BYTES
        self.mode = "PROVISIONED"
        self.distribution = "USER_PARTITION_KEY"
        self.tags = TagSet()
        self.policy: str | None = None
        self.encryption_key: str | None = None
        self.shard_metrics: list[str] = []
        self._next_target = 0
        self.consumers = ConsumerTable(arn, clock, consumer_delay_ms, consumer_limit)
        self.shards: dict[str, Shard] = {}
        self._open: list[Shard] = []
        self._starts: list[int] = []
        self._next_index = 0
        self._busy_until = self.created_ms + creating_ms
        self._shards_from: float = self._busy_until
        self._busy_status = "CREATING"
        self.add_shards([(hash_range, ()) for hash_range in uniform_ranges(shard_count)])

    # --- status

    @property
    def status(self) -> str:
        """CREATING, UPDATING, DELETING or ACTIVE, according to the clock."""
        return self._busy_status if self.clock.now_ms() < self._busy_until else "ACTIVE"

    def set_busy(self, status: str, duration_ms: int) -> None:
        """Show `status` for `duration_ms` before the stream is ACTIVE again, or gone after DELETING."""
        if self.status == "CREATING":
            self._shards_from = inf
        self._busy_status, self._busy_until = status, self.clock.now_ms() + duration_ms

    @property
    def busy(self) -> "Busy":
        """The stored form of the state that `status` follows."""
        return self._busy_status, self._busy_until, None if self._shards_from == inf else int(self._shards_from)

    def restore(self, created_ms: int, busy: "Busy", shards: dict[str, Shard]) -> None:
        """Replace the shards created by the constructor by stored ones."""
        self.created_ms, self.shards = created_ms, shards
        self._busy_status, self._busy_until, shards_from = busy
        self._shards_from = inf if shards_from is None else shards_from
        self._next_index = max(shard.index for shard in shards.values()) + 1
        self._sort_open_shards()

    @property
    def shows_shards(self) -> bool:
        """Whether the stream shows its shards. It never does if it was deleted before they were created."""
        return self.clock.now_ms() >= self._shards_from

    @property
    def is_gone(self) -> bool:
        """Whether a deletion is complete."""
        return self._busy_status == "DELETING" and self.clock.now_ms() >= self._busy_until

    def require_active(self) -> None:
        """Raise ResourceInUseException unless the stream can be changed now."""
        if self.status != "ACTIVE":
            raise in_use(
                f"Stream {self.name} under account {self.account_id} not ACTIVE, instead in state {self.status}"
            )

    # --- shards

    def add_shards(self, planned: Sequence[tuple[HashRange, tuple[Shard, ...]]]) -> list[Shard]:
        """Close the parents and open their children, all at the same time, and return the children.

        The first shards are as old as the stream. If they were younger, they would not be open at its trim horizon.
        """
        parents = {parent.id: parent for _, of_child in planned for parent in of_child}
        now = self.clock.now_ms() if parents else self.created_ms
        epoch = max([now, *(parent.epoch + 1 for parent in parents.values())])
        for parent in parents.values():
            parent.close(epoch)
        children = [self._new_shard(hash_range, family, epoch) for hash_range, family in planned]
        self._sort_open_shards()
        for parent in parents.values():
            parent.log.notify()
        return children

    def _new_shard(self, hash_range: HashRange, parents: tuple[Shard, ...], epoch: int) -> Shard:
        shard = Shard(shard_id(self._next_index), self._next_index, hash_range, epoch, parents)
        self._next_index += 1
        self.shards[shard.id] = shard
        for parent in parents:
            parent.children.append(shard)
        return shard

    def _sort_open_shards(self) -> None:
        self._open = sorted((s for s in self.shards.values() if s.is_open), key=lambda s: s.hash_range.start)
        self._starts = [shard.hash_range.start for shard in self._open]

    @property
    def open_shards(self) -> list[Shard]:
        """Shards that accept records, in the order of their hash ranges."""
        return self._open

    def shard(self, wanted: str) -> Shard:
        """Return the shard with this id, in any form. Raises: ResourceNotFoundException if there is none."""
        found = self.shards.get(canonical_id(wanted))
        if found is None or not self._is_kept(found):
            raise not_found(f"Shard {wanted} in stream {self.name} under account {self.account_id} does not exist")
        found.log.trim(self.horizon_ms)
        return found

    def shard_for(self, hash_key: int) -> Shard:
        """Return the one open shard whose range contains the hash key."""
        return self._open[bisect_right(self._starts, hash_key) - 1]

    def target_of(self, hash_key: int) -> Shard:
        """Return the shard for a new record: the shard of its hash key or, with AUTO record distribution, the next one in turn."""
        if self.distribution != "AUTO":
            return self.shard_for(hash_key)
        self._next_target += 1
        return self._open[self._next_target % len(self._open)]

    @property
    def account_id(self) -> str:
        """Account number in the stream's ARN."""
        return self.arn.split(":")[4]

    # --- records

    def put(self, data: bytes, partition_key: str, hash_key: int | None = None) -> str:
        """Store one record directly, for tests and examples, and return its sequence number."""
        shard = self.target_of(hash_of(partition_key) if hash_key is None else hash_key)
        key_json = msgspec.json.encode(partition_key).decode()
        size = len(data) + len(partition_key.encode())
        sequence_number = shard.log.append(b64encode(data).decode(), key_json, size, self.clock.now_ms())
        shard.log.notify()
        return sequence_number

    def split(self, shard_id: str) -> tuple[str, ...]:
        """Split a shard in the middle of its hash range, and return the ids of its children. Raises: ApiError if it is closed."""
        shard = self.shard(shard_id)
        middle = (shard.hash_range.start + shard.hash_range.end + 1) // 2
        return tuple(child.id for child in split(self, shard, middle))

    def merge(self, shard_id: str, adjacent_shard_id: str) -> str:
        """Merge a shard and the next one, and return the child's id. Raises: ApiError if they are not adjacent, or if one is closed."""
        return merge(self, self.shard(shard_id), self.shard(adjacent_shard_id)).id

    @property
    def horizon_ms(self) -> int:
        """The time (epoch ms) before which records that arrived are past retention."""
        return self.clock.now_ms() - self.retention_hours * HOUR_MS

    def apply_retention(self) -> None:
        """Remove what is past retention: records, and shards that were closed before it."""
        for shard in tuple(self.shards.values()):
            shard.log.trim(self.horizon_ms)
            if not self._is_kept(shard):
                del self.shards[shard.id]

    def _is_kept(self, shard: Shard) -> bool:
        return shard.closed_epoch is None or shard.closed_epoch >= self.horizon_ms
