"""Rows of a table of async-kinesis, as version 3.0.1 wrote them to DynamoDB (its sequence numbers replaced)."""

NULL = {"NULL": True}


def row(shard_id, sequence=None, owner=None, renewed_at=None):
    """One that was given up; with an owner and a time one of a consumer that lives, or has died."""
    return {
        "shard_id": {"S": shard_id},
        "ref": NULL if owner is None else {"S": owner},
        "ts": NULL if renewed_at is None else {"N": str(renewed_at)},
        "sequence": NULL if sequence is None else {"S": sequence},
        "ttl": {"N": "1795516407"},
    }
