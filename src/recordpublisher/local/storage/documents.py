"""The stored form of everything except records: account, streams, shards, consumers, queues, tags."""

from typing import Any

import msgspec

from ..queues.deliveries import Delivery
from ..queues.queue import Queue
from ..streams.account import Account
from ..streams.consumers import Consumer
from ..streams.shard import HashRange, Shard, shard_id
from ..streams.stream import Busy, Stream
from ..streams.tags import TagSet


class StoredShard(msgspec.Struct, frozen=True):
    """A shard without its records. Hash keys are stored as text, because they have 128 bits."""

    id: str
    index: int
    start: str
    end: str
    epoch: int
    parents: list[str]
    closed_epoch: int | None
    ending_counter: int | None


class StoredStream(msgspec.Struct, frozen=True):
    """A stream with its settings, shards and consumers."""

    name: str
    created_ms: int
    busy: Busy
    settings: dict[str, str | int | list[str] | None]
    tags: TagSet
    shards: list[StoredShard]
    consumers: list[Consumer]


class StoredQueue(msgspec.Struct, frozen=True):
    """A queue with its position in each shard, and the records that are in flight."""

    name: str
    arn: str
    stream: str
    created_ms: int
    settings: dict[str, Any]
    busy_status: str
    busy_until_ms: int
    tags: TagSet
    policy: str | None
    cursors: dict[str, int]
    deliveries: list[Delivery]


class StoredAccount(msgspec.Struct, frozen=True):
    """The account. With `token_seed`, iterators from before a restart stay valid."""

    region: str
    token_seed: int
    streams: list[StoredStream]
    queues: list[StoredQueue] = []


SETTINGS = (
    "retention_hours",
    "max_record_bytes",
    "mode",
    "distribution",
    "policy",
    "encryption_key",
    "shard_metrics",
)


def encoded(account: Account) -> bytes:
    """Return the stored form of an account."""
    streams = [_stored_stream(stream) for stream in account.streams().values()]
    queues = [_stored_queue(queue) for queue in account.queues.all()]
    stored = StoredAccount(account.region, account.tokens.seed, streams, queues)
    return msgspec.msgpack.encode(stored, enc_hook=TagSet.values)


def decoded(document: bytes) -> StoredAccount:
    """Return a stored account. Raises: one of UNDECODABLE if it cannot be read."""
    return msgspec.msgpack.decode(document, type=StoredAccount, dec_hook=lambda _, tags: TagSet(tags))


def restore_account(account: Account, stored: StoredAccount) -> None:
    """Add the stored streams and queues to an empty account."""
    account.tokens.seed = stored.token_seed
    for each in stored.streams:
        _restore_stream(account.create_stream(each.name, 1), each)
    for stored_queue in stored.queues:
        _restore_queue(account, stored_queue)


def _stored_stream(stream: Stream) -> StoredStream:
    stream.apply_retention()
    kept = list(stream.shards.values())
    known = {shard.id for shard in kept}
    parents = {parent.id: parent for shard in kept for parent in shard.parents if parent.id not in known}
    return StoredStream(
        stream.name,
        stream.created_ms,
        stream.busy,
        {name: getattr(stream, name) for name in SETTINGS},
        stream.tags,
        [_stored_shard(shard) for shard in (*parents.values(), *kept)],
        stream.consumers.all(),
    )


def _stored_shard(shard: Shard) -> StoredShard:
    span = shard.hash_range
    parents = [parent.id for parent in shard.parents]
    ends = shard.closed_epoch, shard.ending_counter
    return StoredShard(shard.id, shard.index, str(span.start), str(span.end), shard.epoch, parents, *ends)


QUEUE_FIELDS = ("name", "arn", "created_ms", "settings", "busy_status", "busy_until_ms", "tags", "policy")


def _stored_queue(queue: Queue) -> StoredQueue:
    known, fields = queue.deliveries, {name: getattr(queue, name) for name in QUEUE_FIELDS}
    deliveries = list(known.unacknowledged.values())
    return StoredQueue(stream=queue.stream.name, cursors=known.cursors, deliveries=deliveries, **fields)


def _restore_queue(account: Account, stored: StoredQueue) -> None:
    stream = account.streams().get(stored.stream)
    if stream is None:
        raise msgspec.ValidationError(f"{stored.arn} is of the stream {stored.stream}, which is missing")
    queue = account.queues.add(Queue(stream=stream, **{name: getattr(stored, name) for name in QUEUE_FIELDS}))
    queue.deliveries.begin(stored.cursors, stored.deliveries)


def _restore_stream(stream: Stream, stored: StoredStream) -> None:
    shards: dict[str, Shard] = {}
    for each in stored.shards:  # parents come before their children
        parents = tuple(shards[parent] for parent in each.parents if parent in shards)
        if each.id != shard_id(each.index):
            raise msgspec.ValidationError(f"shard {each.index} of {stored.name} has the id {each.id!r}")
        span = HashRange(int(each.start), int(each.end))
        shard = shards[each.id] = Shard(each.id, each.index, span, each.epoch, parents)
        shard.closed_epoch, shard.ending_counter = each.closed_epoch, each.ending_counter
        for parent in parents:
            parent.children.append(shard)
    stream.restore(stored.created_ms, stored.busy, shards)
    for name, value in stored.settings.items():
        setattr(stream, name, value)
    stream.tags = stored.tags
    for consumer in stored.consumers:
        stream.consumers.restore(consumer)
