"""How the hash keys of a stream are distributed over its open shards."""

from collections.abc import Sequence

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.shards import Shard

from .findings import NotCheckedError

MAX_EVEN_SHARES = 4
"""A shard with more than this many times its even share of the hash keys has too many."""
MAX_PERCENT = 90
"""The same for a stream of few shards."""


def check_distribution(shards: Sequence[Shard]) -> str:
    """Return how large the hash key range of the largest open shard is.

    Raises: RecordPublisherError if it is so large that the shard gets most of the records; NotCheckedError if no shard is known.
    """
    open_shards = [shard for shard in shards if not shard.closed]
    if not open_shards:
        raise NotCheckedError("no shard is known")
    if len(open_shards) == 1:
        return "one open shard takes all hash keys"
    largest = max(open_shards, key=_size)
    percent = 100 * _size(largest) / sum(map(_size, open_shards))
    if percent > min(MAX_PERCENT, MAX_EVEN_SHARES * 100 / len(open_shards)):
        raise RecordPublisherError(
            f"{largest.shard_id} takes {percent:.0f} % of the hash keys of {len(open_shards)} open shards: "
            f"recordpublisher split {largest.stream} {largest.shard_id}"
        )
    return f"the largest of {len(open_shards)} open shards takes {percent:.0f} % of the hash keys"


def _size(shard: Shard) -> int:
    return shard.hash_range.end - shard.hash_range.start + 1
