"""The operations that write and read records."""

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from functools import lru_cache

import msgspec

from recordpublisher.publishers.service_limits import GET_RECORDS_BYTES, PUT_RECORDS_BYTES

from .. import requests
from ..account import Account
from ..errors import ApiError, check_dry_run, in_use, invalid_argument, invalid_input, not_found, throughput_exceeded
from ..faults import FaultKind
from ..requests import GetRecords, GetShardIterator, SubscribeToShard, violation
from ..shard import Shard, ShardIterator, explicit_hash, hash_of, start_counter
from ..stream import Stream
from ..subscriptions import Subscription, millis_behind


def put_record(account: Account, request: requests.PutRecord) -> object:
    """Store one record."""
    entry = requests.PutRecordsEntry(request.data, request.partition_key, request.explicit_hash_key)
    data_size = _data_size(entry)
    stream = account.find_usable(request.stream_name, request.stream_arn)
    size = _size(entry, data_size, stream)
    _check_minimum(stream, request.sequence_number_for_ordering)
    shard, key_json = _target(stream, entry)
    check_dry_run(request.dry_run)
    if account.throttle and not account.throttle.admit_write(f"{stream.name}/{shard.id}", size):
        raise throughput_exceeded(_rate_exceeded(stream, shard))
    sequence_number = shard.log.append(entry.data, key_json, size, account.clock.now_ms())
    shard.log.notify()
    return {"ShardId": shard.id, "SequenceNumber": sequence_number}


def put_records(account: Account, request: requests.PutRecords) -> bytes:
    """Store up to 500 records. A record that a quota or a fault refuses gets an error in the result."""
    data_sizes = [_data_size(entry) for entry in request.records]
    stream = account.find_usable(request.stream_name, request.stream_arn)
    sizes = [
        _size(entry, size, stream, place)
        for place, (entry, size) in enumerate(zip(request.records, data_sizes, strict=True), 1)
    ]
    if sum(sizes) > PUT_RECORDS_BYTES:
        raise invalid_argument(f"Records size exceeds {PUT_RECORDS_BYTES} bytes: {sum(sizes)}")
    targets = [_target(stream, entry) for entry in request.records]
    check_dry_run(request.dry_run)
    now = account.clock.now_ms()
    results: list[str] = []
    failed = 0
    for entry, size, (shard, key_json) in zip(request.records, sizes, targets, strict=True):
        error = _error_entry(account, stream, shard, size)
        if error is None:
            number = shard.log.append(entry.data, key_json, size, now)
            results.append(f'{{"SequenceNumber":"{number}","ShardId":"{shard.id}"}}')
        else:
            failed += 1
            results.append(error)
    for log in dict.fromkeys(shard.log for shard, _ in targets):
        log.notify()
    return f'{{"FailedRecordCount":{failed},"Records":[{",".join(results)}]}}'.encode()


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
    """Read from an iterator: at most 10,000 records and 10 MiB. At the end of a closed shard, return the shard's children."""
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
        behind = max(behind, 1)  # 0 would mean that no more records follow.
    return b'{"Records":[%b],"MillisBehindLatest":%d,%b}' % (b",".join(found.fragments), behind, tail)


def subscribe_to_shard(account: Account, request: SubscribeToShard) -> Subscription:
    """Open a subscription. Raises: the service's errors, before any event is sent."""
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


@lru_cache(maxsize=16_384)
def _key_facts(partition_key: str | None) -> tuple[int, str | None, int]:
    """Return the hash of a key, its JSON text and its size in bytes. A record may have no key (AUTO record distribution)."""
    if partition_key is None:
        return 0, None, 0
    return hash_of(partition_key), msgspec.json.encode(partition_key).decode(), len(partition_key.encode())


def _data_size(entry: requests.PutRecordsEntry) -> int:
    """Return the size of the data (bytes). Raises: SerializationException if the data is not base64."""
    try:
        data = a2b_base64(entry.data, strict_mode=True)
    except (Base64Error, ValueError) as error:
        raise ApiError("SerializationException", f"Data is not base64: {error}") from error
    last = entry.data[-4:]
    if last.endswith("=") and b2a_base64(a2b_base64(last), newline=False).decode() != last:
        raise ApiError("SerializationException", f"Data is not base64: bits are set before the padding: {last}")
    return len(data)


def _size(entry: requests.PutRecordsEntry, data_size: int, stream: Stream, place: int | None = None) -> int:
    """Return the record's size (bytes). `place` is the record's place in PutRecords, from 1.

    Raises: ValidationException if the key is missing or the record is too big.
    """
    if entry.partition_key is None and stream.distribution != "AUTO":
        raise invalid_input(violation("null", _member("partitionKey", place), "Member must not be null"))
    size = data_size + _key_facts(entry.partition_key)[2]
    if size > stream.max_record_bytes:
        shown = f"'java.nio.HeapByteBuffer[pos=0 lim={data_size} cap={data_size}]'"
        limit = f"Member must have length less than or equal to {stream.max_record_bytes}"
        raise invalid_input(violation(shown, _member("data", place), limit))
    return size


def _member(name: str, place: int | None) -> str:
    return name if place is None else f"records.{place}.member.{name}"


def _check_minimum(stream: Stream, number: str | None) -> None:
    """Raise InvalidArgumentException if SequenceNumberForOrdering is not a sequence number of this stream.

    A number of this stream needs no further check, because later records of a shard have higher numbers anyway.
    """
    if number is not None and all(shard.log.numbers.counter(number) is None for shard in stream.shards.values()):
        raise invalid_argument(
            f"ExclusiveMinimumSequenceNumber {number} used in PutRecord on stream {stream.name} under account "
            f"{stream.account_id} is invalid."
        )


def _target(stream: Stream, entry: requests.PutRecordsEntry) -> tuple[Shard, str | None]:
    key_hash, key_json, _ = _key_facts(entry.partition_key)
    # With AUTO the number is ignored, even if it is wrong.
    explicit = entry.explicit_hash_key if stream.distribution != "AUTO" else None
    return stream.target_of(key_hash if explicit is None else explicit_hash(explicit)), key_json


def _error_entry(account: Account, stream: Stream, shard: Shard, size: int) -> str | None:
    """Return the error of a record that a quota or a fault refuses, or None if the record must be stored."""
    code = account.faults.for_entry("PutRecords")
    if code is None and account.throttle and not account.throttle.admit_write(f"{stream.name}/{shard.id}", size):
        code = "ProvisionedThroughputExceededException"
    if code is None:
        return None
    return msgspec.json.encode({"ErrorCode": code, "ErrorMessage": _rate_exceeded(stream, shard)}).decode()


def _rate_exceeded(stream: Stream, shard: Shard) -> str:
    return f"Rate exceeded for shard {shard.id} in stream {stream.name} under account {stream.account_id}."


def _stream_of(account: Account, iterator: ShardIterator, arn: str | None) -> Stream:
    stream = account.find_usable(iterator.stream)
    if arn is not None and arn != stream.arn:
        raise invalid_argument(f"The ShardIterator belongs to stream {stream.arn}, not to {arn}.")
    if stream.created_ms != iterator.stream_created_ms:
        raise not_found(f"The stream {stream.name} of the ShardIterator was deleted.")
    return stream


def _token(account: Account, stream: Stream, shard: Shard, counter: int) -> str:
    now, current_generation = account.clock.now_ms(), account.faults.iterator_generation
    return account.tokens.make(
        ShardIterator(stream.name, stream.created_ms, shard.id, counter, now, current_generation)
    )
