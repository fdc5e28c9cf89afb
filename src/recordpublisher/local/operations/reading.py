"""GetShardIterator, GetRecords and SubscribeToShard."""

import msgspec

from recordpublisher.publishers.service_limits import GET_RECORDS_BYTES

from ..api_errors import check_dry_run, in_use, invalid_argument, not_found
from ..faults.kinds import FaultKind
from ..requests.consumers import SubscribeToShard
from ..requests.records import GetRecords, GetShardIterator
from ..streams.account import Account
from ..streams.shard import Shard
from ..streams.shard_iterator import ShardIterator, start_counter
from ..streams.stream import Stream
from ..streams.subscriptions import Subscription, millis_behind


def get_shard_iterator(account: Account, request: GetShardIterator) -> object:
    """Return a shard iterator: a token that is valid for five minutes."""
    stream = account.find_usable(request.stream_name, request.stream_arn)
    shard = stream.shard(request.shard_id)
    now = account.clock.now_ms()
    counter = start_counter(
        shard, request.shard_iterator_type, request.starting_sequence_number, request.timestamp, now
    )
    check_dry_run(request.dry_run)
    return {"ShardIterator": _token(account, stream, shard, counter)}


def get_records(account: Account, request: GetRecords) -> bytes:
    """Read from an iterator: at most 10,000 records and 10 MiB; the end of a closed shard lists its children."""
    iterator = account.tokens.open(request.shard_iterator, ShardIterator)
    if iterator is None:
        raise invalid_argument("Invalid ShardIterator.")
    now = account.clock.now_ms()
    iterator.require_fresh(now, account.faults.iterator_generation)
    stream = _stream_of(account, iterator, request.stream_arn)
    shard = stream.shard(iterator.shard_id)
    check_dry_run(request.dry_run)
    key = f"{stream.name}/{shard.id}"
    if account.throttle:
        account.throttle.before_read(key)
    is_empty = account.faults.take(FaultKind.EMPTY) is not None
    found = shard.log.read(iterator.counter, 0 if is_empty else request.limit, GET_RECORDS_BYTES)
    if account.throttle:
        account.throttle.after_read(key, found.size)
    if found.unread_arrival_ms is None and not shard.is_open:
        tail = b'"ChildShards":' + msgspec.json.encode(shard.describe_children())
    else:
        tail = b'"NextShardIterator":"%b"' % _token(account, stream, shard, found.next_counter).encode()
    behind = millis_behind(found.unread_arrival_ms, now)
    if is_empty and found.unread_arrival_ms is not None:
        behind = max(behind, 1)  # 0 would mean that there are no records
    return b'{"Records":[%b],"MillisBehindLatest":%d,%b}' % (b",".join(found.fragments), behind, tail)


def _stream_of(account: Account, iterator: ShardIterator, arn: str | None) -> Stream:
    stream = account.find_usable(iterator.stream)
    if arn is not None and arn != stream.arn:
        raise invalid_argument(f"The ShardIterator is of stream {stream.arn}, not of {arn}.")
    if stream.created_ms != iterator.stream_created_ms:
        raise not_found(f"The stream {stream.name} that the ShardIterator is of was deleted.")
    return stream


def _token(account: Account, stream: Stream, shard: Shard, counter: int) -> str:
    now, current_generation = account.clock.now_ms(), account.faults.iterator_generation
    return account.tokens.seal(
        ShardIterator(stream.name, stream.created_ms, shard.id, counter, now, current_generation)
    )


def subscribe_to_shard(account: Account, request: SubscribeToShard) -> Subscription:
    """Open a subscription. Raises: the service's errors, before any event."""
    stream = account.find_usable(arn=request.consumer_arn)
    consumer = stream.consumers.find(arn=request.consumer_arn)
    now = account.clock.now_ms()
    if consumer.status(now) == "CREATING":
        raise in_use(f"Consumer {consumer.arn} is CREATING, not ACTIVE.")
    if consumer.status(now) == "DELETING":
        raise not_found(f"Consumer {consumer.arn} is DELETING.")
    shard = stream.shard(request.shard_id)
    start = request.starting_position
    counter = start_counter(shard, start.type, start.sequence_number, start.timestamp, now)
    check_dry_run(request.dry_run)
    if account.throttle:
        account.throttle.before_subscribe(f"{consumer.arn} {shard.id}")
    return account.subscriptions.open(stream, consumer, shard, counter)
