"""The table of operations. The function with an operation's name carries it out; its `request` is the input."""

import re
from collections.abc import Callable
from inspect import get_annotations
from typing import Any, TypeVar

import msgspec

from recordpublisher.publishers.undecodable import UNDECODABLE

from ..api_errors import ApiError, invalid_input
from ..requests.fields import Request
from ..requests.violations import violations
from ..streams.account import Account
from . import consumers, put_records, queues, reading, settings, shards, streams

R = TypeVar("R", bound=Request)
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
    """Return a function that decodes a body into the input. It raises ValidationException or SerializationException."""
    decode = msgspec.json.Decoder(kind).decode

    def checked(body: bytes) -> R:
        try:
            return decode(body or b"{}")
        except msgspec.ValidationError as error:
            if WRONG_TYPE.match(str(error)):
                raise ApiError("SerializationException", str(error)) from error
            message = violations(kind, body)
            raise (
                invalid_input(str(error)) if message is None else ApiError("ValidationException", message)
            ) from error
        except UNDECODABLE as error:
            raise ApiError("SerializationException", f"The body is not JSON: {error}") from error

    return checked


FUNCTIONS: tuple[Callable[[Account, Any], object], ...] = (
    streams.create_stream, streams.delete_stream, streams.describe_stream, streams.describe_stream_summary,
    streams.list_streams, streams.increase_stream_retention_period, streams.decrease_stream_retention_period,
    streams.update_stream_record_distribution_strategy,
    shards.list_shards, shards.split_shard, shards.merge_shards, shards.update_shard_count,
    put_records.put_record, put_records.put_records,
    reading.get_shard_iterator, reading.get_records,
    consumers.register_stream_consumer, consumers.describe_stream_consumer, consumers.list_stream_consumers,
    consumers.deregister_stream_consumer,
    settings.tag_resource, settings.untag_resource, settings.list_tags_for_resource, settings.add_tags_to_stream,
    settings.remove_tags_from_stream, settings.list_tags_for_stream, settings.put_resource_policy,
    settings.get_resource_policy, settings.delete_resource_policy, settings.start_stream_encryption,
    settings.stop_stream_encryption, settings.enable_enhanced_monitoring, settings.disable_enhanced_monitoring,
    settings.update_max_record_size, settings.update_stream_mode,
    settings.describe_limits,
    queues.create_queue, queues.describe_queue, queues.list_queues, queues.update_queue, queues.delete_queue,
    queues.receive_queue_records, queues.receive_dead_letter_queue_records, queues.acknowledge_queue_records,
    queues.acknowledge_dead_letter_queue_records, queues.restore_dead_letter_queue_records,
    queues.update_queue_records_visibility, queues.update_dead_letter_queue_records_visibility,
)  # fmt: skip
INPUTS: dict[str, type[Request]] = {
    function.__name__.title().replace("_", ""): get_annotations(function, eval_str=True)["request"]
    for function in FUNCTIONS
}
OPERATIONS = {
    name: _operation(kind, function) for (name, kind), function in zip(INPUTS.items(), FUNCTIONS, strict=True)
}
