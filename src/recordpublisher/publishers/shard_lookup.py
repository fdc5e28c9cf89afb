"""Whether a shard that was not found is still listed."""

from __future__ import annotations

from .errors import TransientError
from .kinesis.ports import ListingPort
from .shards import Shard, is_listing_older_than


async def is_shard_listed(listing: ListingPort, shard: Shard) -> bool:
    """Whether the stream still lists a shard. Raises: TransientError when the listing is older than the shard; what the port raises."""
    listed = await listing.list_shards(shard.stream_arn or shard.stream)
    if is_listing_older_than(shard, listed):
        raise TransientError("ListShards", "NotListedYet", f"{shard.key} is not found and not listed yet")
    return any(one.shard_id == shard.shard_id for one in listed)
