"""A record as a JSON object: what `tail` prints and the jsonl sink writes."""

from __future__ import annotations

import base64
from typing import Any

from recordpublisher.publishers.records import Record


def as_json(record: Record) -> dict[str, Any]:
    """One record: payloads that are not UTF-8 as base64, with `"base64": true`."""
    shown = {**described(record), "eventTime": record.event_time}
    try:
        return shown | {"data": record.data.decode()}
    except UnicodeDecodeError:
        return shown | {"data": base64.b64encode(record.data).decode(), "base64": True}


def described(record: Record) -> dict[str, Any]:
    """Where a record is from."""
    return {
        "stream": record.stream,
        "shardId": record.shard_id,
        "sequenceNumber": record.sequence_number,
        "subSequenceNumber": record.sub_sequence_number,
        "partitionKey": record.partition_key,
        "approximateArrivalTimestamp": record.approximate_arrival_timestamp.isoformat(timespec="milliseconds"),
    }
