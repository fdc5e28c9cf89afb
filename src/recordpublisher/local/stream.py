"""A stream: its shards and their reshards, its consumers, its tags and its retention."""

from __future__ import annotations

import re
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

import msgspec

from recordpublisher.publishers.service_limits import DEFAULT_RECORD_BYTES

from .clock import Clock
from .errors import ApiError, in_use, invalid_argument, limit_exceeded, not_found
from .shard import HashRange, Shard, canonical_id, hash_of, shard_id, uniform_ranges

BusyStatus = tuple[str, int, int | None]
"""The status that was set last, and two times (epoch ms): when the status ends, and from when on the stream shows its shards. The second is
None if it never shows them.
"""
HOUR_MS = 3_600_000
DEFAULT_RETENTION_HOURS = 24

T = TypeVar("T")

CONSUMER_LIMIT = 20
"""The most consumers and queues of a stream."""

MAX_TAGS = 50
RESERVED_PREFIX = "aws:"
_REFUSED = re.compile("[^\u00c0-\u1fff\u2c00-\ud7ffA-Za-z0-9_./=+ @-]")
"""The characters that tags may not have, as kinesalite recorded them from AWS.

AWS refuses %, tabs and line ends as well, although its error message says that % is allowed.
"""


class Stream:
    """A stream: its shards, in the order of their hash keys, its consumers, and its status, which follows the clock."""

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
        """Give the stream this status for `duration_ms`. After that it is ACTIVE again, or after DELETING it no longer exists."""
        if self.status == "CREATING":
            self._shards_from = inf
        self._busy_status, self._busy_until = status, self.clock.now_ms() + duration_ms

    @property
    def busy(self) -> BusyStatus:
        """The status that was set last and its times, for `restore`."""
        return self._busy_status, self._busy_until, None if self._shards_from == inf else int(self._shards_from)

    def restore(self, created_ms: int, busy: BusyStatus, shards: dict[str, Shard]) -> None:
        """Give the stream a stored creation time and status, and stored shards instead of those that the constructor has created."""
        self.created_ms, self.shards = created_ms, shards
        self._busy_status, self._busy_until, shards_from = busy
        self._shards_from = inf if shards_from is None else shards_from
        self._next_index = max(shard.index for shard in shards.values()) + 1
        self._sort_open_shards()

    @property
    def shows_shards(self) -> bool:
        """Whether the stream shows its shards yet. A stream that was deleted before it was created never does."""
        return self.clock.now_ms() >= self._shards_from

    @property
    def is_gone(self) -> bool:
        """Whether the stream was deleted, and its deletion is complete."""
        return self._busy_status == "DELETING" and self.clock.now_ms() >= self._busy_until

    def require_active(self) -> None:
        """Raise ResourceInUseException unless the stream can be changed now."""
        if self.status != "ACTIVE":
            raise in_use(
                f"Stream {self.name} under account {self.account_id} not ACTIVE, instead in state {self.status}"
            )

    # --- shards

    def add_shards(self, planned: Sequence[tuple[HashRange, tuple[Shard, ...]]]) -> list[Shard]:
        """Open new shards, and close their parents at the same time. Return the new shards.

        - `planned`: the hash range and the parents of each new shard.

        The first shards of a stream get the creation time of the stream, so a ShardFilter with that time finds them.
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
        """Return the shard with this id, in any spelling. Raises: ResourceNotFoundException if there is none."""
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
        """Split a shard in the middle of its hash range, and return the ids of its children. Raises: ApiError if the shard is closed."""
        shard = self.shard(shard_id)
        middle = (shard.hash_range.start + shard.hash_range.end + 1) // 2
        return tuple(child.id for child in split(self, shard, middle))

    def merge(self, shard_id: str, adjacent_shard_id: str) -> str:
        """Merge two adjacent shards, the one with the lower hash keys first, and return the child's id.

        Raises: ApiError if the shards are not adjacent in this order, or if one is closed.
        """
        return merge(self, self.shard(shard_id), self.shard(adjacent_shard_id)).id

    @property
    def horizon_ms(self) -> int:
        """Time at which the retention period begins (epoch ms). Records that arrived before it are past retention."""
        return self.clock.now_ms() - self.retention_hours * HOUR_MS

    def apply_retention(self) -> None:
        """Remove records that are past retention, and shards that were closed before the retention period began."""
        for shard in tuple(self.shards.values()):
            shard.log.trim(self.horizon_ms)
            if not self._is_kept(shard):
                del self.shards[shard.id]

    def _is_kept(self, shard: Shard) -> bool:
        return shard.closed_epoch is None or shard.closed_epoch >= self.horizon_ms


def split(stream: Stream, shard: Shard, new_start: int) -> list[Shard]:
    """Split a shard. Its second child begins at the hash key `new_start`.

    Raises: InvalidArgumentException if `new_start` is outside the shard's range, or if the shard is closed.
    """
    _require_open(stream, shard)
    span = shard.hash_range
    if not span.start + 1 < new_start < span.end:
        raise invalid_argument(
            f"NewStartingHashKey {new_start} used in SplitShard() on shard {shard.id} in stream {stream.name} under "
            f"account {stream.account_id} is not both greater than one plus the shard's StartingHashKey {span.start} "
            f"and less than the shard's EndingHashKey {span.end}."
        )
    return _split_at(stream, shard, new_start)


def merge(stream: Stream, shard: Shard, adjacent: Shard) -> Shard:
    """Merge two shards. The hash range of `adjacent` must follow that of `shard`.

    Raises: InvalidArgumentException if it does not, or if one of the shards is closed.
    """
    _require_open(stream, shard)
    _require_open(stream, adjacent)
    if shard.hash_range.end + 1 != adjacent.hash_range.start:
        raise invalid_argument(
            f"Shards {shard.id} and {adjacent.id} in stream {stream.name} under account {stream.account_id} are not "
            "an adjacent pair of shards eligible for merging"
        )
    return _merge(stream, shard, adjacent)


def update_shard_count(stream: Stream, target: int) -> None:
    """Change the number of shards, with uniform hash ranges.

    As in the service, it splits shards at every new boundary, then merges the shards between two boundaries.

    Raises: InvalidArgumentException if `target` is more than double or less than half of the open shards.
    """
    current = len(stream.open_shards)
    if target > current * 2 or target * 2 < current:
        raise invalid_argument(
            f"UpdateShardCount cannot go past double or half of the open shards. Current: {current}, target: {target}"
        )
    ranges = uniform_ranges(target)
    for start in (span.start for span in ranges[1:]):
        shard = stream.shard_for(start)
        if shard.hash_range.start != start:
            _split_at(stream, shard, start)
    for span in ranges:
        _merge_all(stream, span)


def _merge_all(stream: Stream, span: HashRange) -> None:
    low = stream.shard_for(span.start)
    while low.hash_range.end != span.end:
        low = _merge(stream, low, stream.shard_for(low.hash_range.end + 1))


def _split_at(stream: Stream, shard: Shard, new_start: int) -> list[Shard]:
    span = shard.hash_range
    halves = HashRange(span.start, new_start - 1), HashRange(new_start, span.end)
    return stream.add_shards([(half, (shard,)) for half in halves])


def _merge(stream: Stream, shard: Shard, adjacent: Shard) -> Shard:
    spans = shard.hash_range, adjacent.hash_range
    whole = HashRange(min(s.start for s in spans), max(s.end for s in spans))
    return stream.add_shards([(whole, (shard, adjacent))])[0]


def _require_open(stream: Stream, shard: Shard) -> None:
    if not shard.is_open:
        raise invalid_argument(
            f"Shard {shard.id} in stream {stream.name} under account {stream.account_id} has already been merged or "
            "split, and thus is not eligible for merging or splitting."
        )


def filter_shards(
    stream: Stream, kind: str | None, shard_id: str | None = None, timestamp_ms: int | None = None
) -> list[Shard]:
    """Return the shards within retention that a ShardFilter of type `kind` keeps, in the order of their ids. None keeps all."""
    stream.apply_retention()
    shards = list(stream.shards.values())
    oldest = max(stream.horizon_ms, stream.created_ms)
    if kind in (None, "FROM_TRIM_HORIZON"):
        return shards
    if kind == "AT_LATEST":
        return [shard for shard in shards if shard.is_open]
    if kind == "AT_TRIM_HORIZON":
        return [shard for shard in shards if shard.was_open_at(oldest)]
    if kind == "AFTER_SHARD_ID":
        return [shard for shard in shards if shard.id > _required(shard_id, "ShardId", kind)]
    moment = max(oldest, _past(_required(timestamp_ms, "Timestamp", kind), stream.clock.now_ms()))
    if kind == "AT_TIMESTAMP":
        return [shard for shard in shards if shard.was_open_at(moment)]
    return [shard for shard in shards if shard.is_open_after(moment)]


def _required(value: T | None, field: str, kind: str) -> T:
    if value is None:
        raise invalid_argument(f"{field} must be given with a ShardFilter of type {kind}.")
    return value


def _past(timestamp_ms: int, now_ms: int) -> int:
    if timestamp_ms > now_ms:
        raise invalid_argument(f"The timestamp {timestamp_ms} of the ShardFilter is in the future; now: {now_ms}")
    return timestamp_ms


class TagSet:
    """The tags of one resource, at most 50. Keys that begin with `aws:` are reserved for the service.

    Raises: InvalidArgumentException if the initial tags are not valid, as in `add`.
    """

    def __init__(self, tags: Mapping[str, str] | None = None) -> None:
        self._values: dict[str, str] = {}
        self.add(tags or {})

    def add(self, tags: Mapping[str, str]) -> None:
        """Add all of the tags, or none.

        Raises: InvalidArgumentException if a key is reserved, if a character is not allowed, or if there are too many tags.
        """
        _check_characters((*tags.keys(), *tags.values()))
        reserved = next((key for key in tags if key.lower().startswith(RESERVED_PREFIX)), None)
        if reserved is not None:
            raise invalid_argument(f"Tag key {reserved} begins with {RESERVED_PREFIX}, which is reserved.")
        count = len(self._values.keys() | tags.keys())
        if count > MAX_TAGS:
            raise invalid_argument(f"A resource has at most {MAX_TAGS} tags; it would have {count}.")
        self._values.update(tags)

    def remove(self, keys: Iterable[str]) -> None:
        """Remove tags, and ignore those that do not exist. Raises: InvalidArgumentException for characters that are not allowed."""
        keys = tuple(keys)
        _check_characters(keys)
        for key in keys:
            self._values.pop(key, None)

    def values(self) -> dict[str, str]:
        """Return the tags by key."""
        return dict(self._values)

    def describe(self, after: str = "") -> list[dict[str, str]]:
        """Return the tags as the API shows them, sorted by key; only those whose key sorts behind `after`."""
        return [{"Key": key, "Value": self._values[key]} for key in sorted(self._values) if key > after]


def _check_characters(texts: Iterable[str]) -> None:
    if any(_REFUSED.search(text) for text in texts):
        allowed = "Unicode letters, digits, white space, _ . / = + - % @."
        raise invalid_argument(f"Some tags contain invalid characters. Valid characters: {allowed}")


@dataclass(slots=True, eq=False)
class Consumer:
    """One registration of a consumer. Its ARN contains its creation time, so a later consumer with the same name has another ARN."""

    name: str
    arn: str
    created_ms: int
    active_from_ms: int
    gone_from_ms: int | None = None
    tags: TagSet = field(default_factory=TagSet)
    policy: str | None = None

    def status(self, now_ms: int) -> str:
        """Return the status at `now_ms` (epoch ms): CREATING, ACTIVE or DELETING."""
        if self.gone_from_ms is not None:
            return "DELETING"
        return "ACTIVE" if now_ms >= self.active_from_ms else "CREATING"

    def is_gone(self, now_ms: int) -> bool:
        """Return whether the deregistration is complete."""
        return self.gone_from_ms is not None and now_ms >= self.gone_from_ms

    def describe(self, now_ms: int) -> dict[str, object]:
        """Return the consumer as ListStreamConsumers shows it."""
        return {
            "ConsumerName": self.name,
            "ConsumerARN": self.arn,
            "ConsumerStatus": self.status(now_ms),
            "ConsumerCreationTimestamp": self.created_ms / 1000,
        }


class ConsumerTable:
    """The consumers of one stream."""

    def __init__(self, stream_arn: str, clock: Clock, delay_ms: int, limit: int = CONSUMER_LIMIT) -> None:
        self._stream_arn = stream_arn
        self._clock = clock
        self._delay_ms = delay_ms
        self._limit = limit
        self._consumers: dict[str, Consumer] = {}

    def all(self) -> list[Consumer]:
        """Return the consumers that exist now, in the order of their names."""
        now = self._clock.now_ms()
        self._consumers = {name: c for name, c in self._consumers.items() if not c.is_gone(now)}
        return [self._consumers[name] for name in sorted(self._consumers)]

    def require_room(self, queue_count: int) -> None:
        """Raise LimitExceededException if the stream has no room for one more consumer. `queue_count`: its queues, which need room too."""
        if len(self.all()) + queue_count >= self._limit:
            raise limit_exceeded(f"Stream {self._stream_arn} already has {self._limit} consumers.")

    def register(self, name: str, tags: Mapping[str, str] | None = None, queue_count: int = 0) -> Consumer:
        """Add a consumer. `queue_count`: the number of queues of the stream. They count towards the same limit.

        Raises: ResourceInUseException if the name is taken; LimitExceededException if the limit is reached; InvalidArgumentException if the
        tags are not valid.
        """
        self.all()
        if name in self._consumers:
            raise in_use(f"Consumer {name} under stream {self._stream_arn} already exists.")
        self.require_room(queue_count)
        now = self._clock.now_ms()
        arn = f"{self._stream_arn}/consumer/{name}:{now // 1000}"
        consumer = self._consumers[name] = Consumer(name, arn, now, now + self._delay_ms, tags=TagSet(tags))
        return consumer

    def restore(self, consumer: Consumer) -> None:
        """Add a consumer that was stored."""
        self._consumers[consumer.name] = consumer

    def add_deleting(self, name: str, ms: int) -> None:
        """Add a consumer that is DELETING for `ms` milliseconds, unless the name is taken."""
        self.all()
        if name and name not in self._consumers:
            now = self._clock.now_ms()
            arn = f"{self._stream_arn}/consumer/{name}:{now // 1000 - 3600}"
            self._consumers[name] = Consumer(name, arn, now, now, gone_from_ms=now + ms)

    def deregister(self, consumer: Consumer) -> None:
        """Begin to remove a consumer. Raises: ResourceInUseException if it is already being deleted."""
        if consumer.gone_from_ms is not None:
            raise in_use(f"Consumer {consumer.name} is being deleted already.")
        consumer.gone_from_ms = self._clock.now_ms() + self._delay_ms

    def deregister_once(self, consumer: Consumer) -> None:
        """Begin to remove a consumer. Do nothing if it is already being deleted."""
        if consumer.gone_from_ms is None:
            self.deregister(consumer)

    def find(self, *, name: str | None = None, arn: str | None = None) -> Consumer:
        """Return the consumer with that name or ARN. Raises: ResourceNotFoundException if there is none."""
        for consumer in self.all():
            if arn in (None, consumer.arn) and name in (None, consumer.name):
                return consumer
        if arn is not None:
            raise consumer_not_found(arn)
        raise not_found(f"Consumer {name} of stream {self._stream_arn} not found.")


def consumer_not_found(arn: str) -> ApiError:
    """Return the error for an ARN that no consumer has."""
    return not_found(f"Consumer {arn}, account {arn.split(':')[4]} not found.")
