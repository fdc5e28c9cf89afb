"""The table of operations: the API's name, its input and the function that carries it out."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from .. import requests
from ..api_errors import ApiError, invalid_input
from ..streams.account import Account
from . import consumers, put_records, reading, shards, streams

R = TypeVar("R", bound=requests.Request)
Operation = Callable[[Account, bytes], bytes]
WRONG_TYPE = re.compile(r"Expected `[^`]+`, got `(?!null)")


def _operation(kind: type[R], function: Callable[[Account, R], object]) -> Operation:
    decode = decoder(kind)

    def run(account: Account, body: bytes) -> bytes:
        result = function(account, decode(body))
        if result is None:  # an operation without output
            return b""
        return result if isinstance(result, bytes) else msgspec.json.encode(result)

    return run


def decoder(kind: type[R]) -> Callable[[bytes], R]:
    """Return a function from a body to the input; it raises ValidationException or SerializationException."""
    decode = msgspec.json.Decoder(kind).decode

    def checked(body: bytes) -> R:
        try:
            return decode(body or b"{}")
        except msgspec.ValidationError as error:
            if WRONG_TYPE.match(str(error)):
                raise ApiError("SerializationException", str(error)) from error
            raise invalid_input(str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ApiError("SerializationException", f"The body is not JSON: {error}") from error

    return checked


def _table(*rows: tuple[type[Any], Callable[[Account, Any], object]]) -> dict[str, Operation]:
    return {kind.__name__: _operation(kind, function) for kind, function in rows}


OPERATIONS = _table(
    (requests.CreateStream, streams.create_stream),
    (requests.DeleteStream, streams.delete_stream),
    (requests.DescribeStream, streams.describe_stream),
    (requests.DescribeStreamSummary, streams.describe_stream_summary),
    (requests.ListStreams, streams.list_streams),
    (requests.IncreaseStreamRetentionPeriod, streams.increase_retention),
    (requests.DecreaseStreamRetentionPeriod, streams.decrease_retention),
    (requests.UpdateStreamRecordDistributionStrategy, streams.update_record_distribution),
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
