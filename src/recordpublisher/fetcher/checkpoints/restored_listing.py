"""Gets the listing from which a job with restored state continues. ListShards is eventually consistent (S2, S5)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

from recordpublisher.publishers.shards import Shard

from ..shards.missing_shards import MissingShards
from .initial_states import missing_shards, shards_missing_from_listing
from .snapshot import RestoredState

log = logging.getLogger("recordpublisher.fetcher")
MAX_LISTINGS, PAUSE_SECONDS = 20, 1.0
"""How often shards are listed again while a listing is older than the restored state, and the pause between two listings (s).

After that the last listing is used.
"""


async def list_restored(
    list_all: Callable[[], Awaitable[Sequence[Shard]]],
    streams: Collection[str],
    restored: RestoredState,
    missing: MissingShards,
    is_ours: Callable[[Shard], bool] = lambda shard: True,
) -> Sequence[Shard]:
    """Return every shard of `streams`, and list again if a shard is missing that has not expired.

    Otherwise the missing shard would seem to be lost, or to be new later. Afterwards `missing` knows which of the restored shards that the
    listing lacks have expired.
    """
    for _ in range(MAX_LISTINGS):
        listed = await list_all()
        young = set(shards_missing_from_listing(listed, restored, streams))
        unlisted = missing_shards(listed, filter(is_ours, listed), restored, streams)
        await missing.check(unlisted - young, streams)
        inconsistent = young | {key for key in unlisted if not missing.is_expired(key)}
        if not inconsistent:
            break
        log.warning("the listing lacks these shards, listing again: %s", ", ".join(sorted(inconsistent)))
        await asyncio.sleep(PAUSE_SECONDS)
    return listed
