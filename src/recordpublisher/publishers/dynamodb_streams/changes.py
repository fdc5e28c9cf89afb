"""Turns a change of a DynamoDB table into a record."""

import base64
import json
from typing import Any

from ..records import UserRecord

MOST_DIGITS = 40
"""The most digits of a sequence number (API reference of DynamoDB Streams)."""


def record_of_change(change: dict[str, Any]) -> UserRecord:
    """Return the record of a change. Its partition key is the item's key, its data the change in DynamoDB's JSON.

    Raises: ValueError or KeyError if `change` is not a valid change.
    """
    item = change["dynamodb"]
    created = item["ApproximateCreationDateTime"]  # a datetime of the SDK, or a number in the events of Lambda
    arrival = float(created) if isinstance(created, int | float) else created.timestamp()
    data = {**change, "dynamodb": {**item, "ApproximateCreationDateTime": arrival}}
    key = json.dumps(item["Keys"], sort_keys=True, default=_base64)
    sequence = item["SequenceNumber"]
    if not (sequence.isascii() and sequence.isdecimal() and len(sequence) <= MOST_DIGITS):
        raise ValueError(f"the sequence number {sequence[:50]!r}")
    return UserRecord(json.dumps(data, default=_base64).encode(), sequence, arrival, key)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
