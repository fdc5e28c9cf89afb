"""Reads the events that AWS Lambda's event source mappings send: records of a Kinesis stream, or changes of a DynamoDB table.

Lambda's developer guide describes them ("Process records from Amazon Kinesis Data Streams with Lambda", "Using AWS Lambda with Amazon
DynamoDB").
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.stream_arns import stream_name

VALID = "the event of a Kinesis or DynamoDB Streams event source mapping"
_DYNAMODB_SHARD = "lambda"
"""Stands for the shard of a change, because Lambda does not report the shard."""


def records_by_shard(event: Any) -> dict[Shard, list[UserRecord]]:
    """Return the records of each shard, in order. Raises: ConfigurationError if the event has another form, or is of a tumbling window."""
    if isinstance(event, Mapping) and "window" in event:
        reason = "the answer has no state, so that Lambda would forget what the window has gathered"
        raise ConfigurationError("TumblingWindowInSeconds", event["window"], "not set", reason=reason)
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, Sequence):
        raise ConfigurationError("event", f"{event!r:.200}", VALID)
    found: dict[Shard, list[UserRecord]] = {}
    for record in records:
        try:
            shard, made = _change(record) if record["eventSource"] == "aws:dynamodb" else _kinesis_record(record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConfigurationError("event", f"{record!r:.200}", VALID, reason=reason) from error
        found.setdefault(shard, []).append(made)
    return found


def _kinesis_record(record: Mapping[str, Any]) -> tuple[Shard, UserRecord]:
    kinesis, shard_id = record["kinesis"], record["eventID"].partition(":")[0]
    data = binascii.a2b_base64(kinesis["data"], strict_mode=True)
    number, arrival = str(int(kinesis["sequenceNumber"])), float(kinesis["approximateArrivalTimestamp"])
    made = UserRecord(data, number, arrival, kinesis.get("partitionKey"))
    return Shard(stream_name(record["eventSourceARN"]), shard_id), made


def _change(record: Mapping[str, Any]) -> tuple[Shard, UserRecord]:
    from recordpublisher.publishers.dynamodb_streams import record_of_change

    table = record["eventSourceARN"].partition("/")[2].partition("/")[0]
    return Shard(table, _DYNAMODB_SHARD), record_of_change(dict(record))
