"""Checks whether a shard has really ended when its publisher says so, by the shards that the publisher's source lists."""

from __future__ import annotations

import asyncio
import logging
import random

from recordpublisher.publishers.base import (
    DELETED_SECONDS,
    RecordPublisherFactory,
    is_fault_of_plugin,
    shards_listed_by,
)
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import PluginError, StreamNotFoundError
from recordpublisher.publishers.log_fields import log_extra
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.user_code import (
    describe_error,
)

from ..shards.lineage import parent_keys

discovery_log = logging.getLogger("recordpublisher.discovery")
MAX_LISTINGS_AS_OPEN = 5
"""Number of listings (about one a second) that may show an ended shard as open, before the publisher's report of the end is an error."""
LONGEST_PAUSE = 30.0
"""The longest pause between two attempts to list (seconds)."""


class ShardEndCheck:
    """Checks whether a shard has really ended. Shards that end together share one listing.

    A shard that is stored as ended is never read again. Therefore, if a publisher ends a shard and names no children, the listing of its
    source must confirm the end. Shards of Kinesis are not checked, because the service names the children with the end.
    """

    def __init__(self, factory: RecordPublisherFactory, clock: Clock) -> None:
        self._factory = factory
        self._clock = clock
        self._listing = asyncio.Lock()
        self._open: dict[str, tuple[float, set[str]]] = {}
        """The last listing of each stream: when it began, and the keys of the shards that it shows as open and without children."""

    async def check(self, shard: Shard) -> None:
        """Return when the listing confirms that a shard has ended without children. Failed listings are repeated until one succeeds.

        Raises: PluginError if the listing still shows the shard as open and without children, or is not a list of shards;
        ConfigurationError if the plugin raises it; StreamNotFoundError if the stream was deleted.
        """
        factory = self._factory
        if shard.closed or shard.is_unlisted or factory.ends_open_shards or not factory.lists_shards:
            return
        shown = failed = 0
        missing_since: float | None = None
        while True:
            try:
                if shard.key not in await self._listed_open(shard.stream):
                    return
                shown, failed, missing_since = shown + 1, 0, None
            except Exception as error:
                # An error of `discover` that lasts ends the job elsewhere, in the periodic listing.
                if is_fault_of_plugin(error):
                    raise
                failed += 1
                if isinstance(error, StreamNotFoundError):
                    now = self._clock.monotonic()
                    missing_since = now if missing_since is None else missing_since
                    if now - missing_since >= DELETED_SECONDS:
                        raise ListedAsGoneError(error.stream) from error
                line = "%s was read to its end, and the listing that must confirm this failed; it is repeated: %s"
                discovery_log.warning(line, shard.key, describe_error(error), extra=log_extra(shard.key))
            if shown == MAX_LISTINGS_AS_OPEN:
                name = type(factory).__name__
                raise PluginError(
                    f"the publisher of {name} for {shard.key} returned COMPLETE, and {name}.discover still lists the shard as open and "
                    "without children. If the shard counted as ended, later records would never be read. Let `discover` list it with "
                    "closed=True once nothing more comes, name its `child_shards` in the last batch, or let `run` wait for "
                    "records instead of returning COMPLETE"
                )
            pause = min(LONGEST_PAUSE, 2.0**failed)
            await asyncio.sleep(random.uniform(0.5, 1.0) * pause)  # noqa: S311 (jitter)

    async def _listed_open(self, stream: str) -> set[str]:
        """Return the shards that are open and have no children, according to a listing that began after this call."""
        asked = self._clock.monotonic()
        async with self._listing:
            began, found = self._open.get(stream, (asked, None))
            if found is None or began < asked:
                began = self._clock.monotonic()
                listed = await shards_listed_by(self._factory, stream) or []
                parents = {key for shard in listed for key in parent_keys(shard)}
                found = {shard.key for shard in listed if not shard.closed} - parents
                self._open[stream] = began, found
            return found


class ListedAsGoneError(StreamNotFoundError):
    """The stream was deleted, as the listing of its source shows. An error of the publisher alone does not prove that."""
