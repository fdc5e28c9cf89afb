"""A shard that the service does not find: gone, or a passing trouble? (F4's spirit)."""

from __future__ import annotations

from ..errors import DataLossError, RecordPublisherError, ResourceInUseError, ResourceNotFoundError, TransientError
from ..kinesis.ports import ListingPort
from ..retry import RetryPolicy, retrying
from ..shards import Shard, is_too_old_for


async def why_not_found(
    listing: ListingPort, shard: Shard, error: ResourceNotFoundError, policy: RetryPolicy
) -> RecordPublisherError:
    """The error to raise for a shard that was not found: a shard is never marked complete because it vanished.

    TransientError when it is still listed, DataLossError when it is not: what it held behind our position can no longer be read.
    Raises: StreamNotFoundError when the whole stream is gone.
    """

    async def still_listed() -> bool:
        try:
            listed = await listing.list_shards(shard.stream_arn or shard.stream)
        except ResourceInUseError as busy:  # the stream is being made or deleted: soon one or the other is true
            raise TransientError(busy.api, busy.code, str(busy)) from busy
        if is_too_old_for(shard, listed):
            raise TransientError(error.api, error.code, f"{shard.key} is not found and not listed yet")
        return any(one.shard_id == shard.shard_id for one in listed)

    if await retrying(still_listed, policy):
        return TransientError(error.api, error.code, f"{shard.key} is not found, though it is listed")
    return DataLossError(
        f"shard {shard.key} vanished before it was read to its end: past retention, or the stream was made anew; "
        f"start without its state to go on without the records in between ({error})"
    )
