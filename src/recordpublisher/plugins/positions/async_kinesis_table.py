"""AsyncKinesisTable: reads and writes the checkpoints of async-kinesis in DynamoDB."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from recordpublisher.publishers.errors import StateError

from ..stores.aws_client import ConditionFailedError
from .async_kinesis_checkpoints import NULL, ShardCheckpoint, checkpoint_from_item, checkpoint_to_item
from .dynamodb_table import DynamoDbTable


class AsyncKinesisTable(DynamoDbTable):
    """Its name is kinesis-checkpoints-NAME, unless the checkpointer is given another."""

    CLIENT, KEY = "async-kinesis", "shard_id"

    async def read(self) -> list[ShardCheckpoint] | None:
        """Every checkpoint, sorted by shard. None when there is no table."""
        items = await self._items()
        if items is None:
            return None
        return sorted((checkpoint_from_item(item, self.place) for item in items), key=lambda each: each.shard_id)

    async def write(self, checkpoint: ShardCheckpoint, seen: ShardCheckpoint | None) -> None:
        """Put a checkpoint in the place of the one that was `seen`, or of none. Raises: StateError when the row has changed."""
        condition = {"ConditionExpression": "attribute_not_exists(shard_id)"} if seen is None else _unchanged(seen)
        try:
            await self._call("PutItem", Item=checkpoint_to_item(checkpoint, int(time.time())), **condition)
        except ConditionFailedError as error:
            if checkpoint not in (await self.read() or []):  # otherwise an SDK retry met its own first attempt
                raise StateError(
                    f"the row {checkpoint.shard_id} of {self.place} was changed meanwhile: is a consumer of async-kinesis alive?"
                ) from error

    async def create(self) -> None:
        """Create the table as async-kinesis does: rows expire."""
        await super().create()
        expiry = {"Enabled": True, "AttributeName": "ttl"}
        await self._call("UpdateTimeToLive", TimeToLiveSpecification=expiry)


def renewed_checkpoints(
    before: Collection[ShardCheckpoint], after: Collection[ShardCheckpoint]
) -> list[ShardCheckpoint]:
    """The checkpoints that changed between two readings, and new ones: a consumer is alive."""
    return [each for each in after if each not in before]


def _unchanged(seen: ShardCheckpoint) -> dict[str, Any]:
    values = {
        "sequence": NULL if seen.sequence is None else {"S": seen.sequence},
        "ref": NULL if seen.owner is None else {"S": seen.owner},
        "ts": NULL if seen.renewed_at is None else {"N": str(seen.renewed_at)},
    }
    terms = [
        f"#{name} = :{name}" if value is not NULL else f"(attribute_not_exists(#{name}) OR #{name} = :{name})"
        for name, value in values.items()
    ]
    return {
        "ConditionExpression": " AND ".join(terms),
        "ExpressionAttributeNames": {f"#{name}": name for name in values},
        "ExpressionAttributeValues": {f":{name}": value for name, value in values.items()},
    }
