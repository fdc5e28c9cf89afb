"""The table of operations: the name on the wire, the input it takes, the function that answers."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from .. import requests
from ..api_errors import ApiError, invalid_input
from ..streams.account import Account
from . import consumers, put_records, reading, shards, streams

R = TypeVar("R", bound=requests.Request)
Answer = Callable[[Account, bytes], bytes]


def _operation(kind: type[R], act: Callable[[Account, R], object]) -> Answer:
    decode = decoder(kind)

    def answer(account: Account, body: bytes) -> bytes:
        result = act(account, decode(body))
        return result if isinstance(result, bytes) else msgspec.json.encode(result)

    return answer


def decoder(kind: type[R]) -> Callable[[bytes], R]:
    """Return a function from a body to the input; it raises ValidationException or SerializationException."""
    decode = msgspec.json.Decoder(kind).decode

    def checked(body: bytes) -> R:
        try:
            return decode(body or b"{}")
        except msgspec.ValidationError as error:
            raise invalid_input(str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ApiError("SerializationException", f"The body is not JSON: {error}") from error

    return checked


def _table(*rows: tuple[type[Any], Callable[[Account, Any], object]]) -> dict[str, Answer]:
    return {kind.__name__: _operation(kind, act) for kind, act in rows}


OPERATIONS = _table(
    (requests.CreateStream, streams.create_stream),
    (requests.DeleteStream, streams.delete_stream),
    (requests.DescribeStream, streams.describe_stream),
    (requests.DescribeStreamSummary, streams.describe_stream_summary),
    (requests.ListStreams, streams.list_streams),
    (requests.IncreaseStreamRetentionPeriod, streams.increase_retention),
    (requests.DecreaseStreamRetentionPeriod, streams.decrease_retention),
    (requests.ListShards, shards.list_shards),
    (requests.SplitShard, shards.split_shard),
    (requests.MergeShards, shards.merge_shards),
    (requests.UpdateShardCount, shards.update_shard_count),
    (requests.PutRecord, put_records.put_record),
    (requests.PutRecords, put_records.put_records),
    (requests.GetShardIterator, reading.get_shard_iterator),
    (requests.GetRecords, reading.get_records),
    (requests.RegisterStreamConsumer, consumers.register),
    (requests.DescribeStreamConsumer, consumers.describe),
    (requests.ListStreamConsumers, consumers.list_consumers),
    (requests.DeregisterStreamConsumer, consumers.deregister),
)
