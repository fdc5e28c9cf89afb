"""StreamChanges: begins and stops whole streams of a running fetcher, as the list of streams says (S10)."""

from __future__ import annotations

import logging
from functools import partial

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.log_fields import about
from recordpublisher.publishers.positions import StartingPosition

from .checkpoints.restore import initial_states, unlisted_states
from .checkpoints.restored_listing import list_restored
from .checkpoints.snapshot import RestoredState
from .dependencies import FetcherDependencies
from .shard_lifecycle import ShardLifecycle
from .startup import check_for_data_loss

log = logging.getLogger("recordpublisher.discovery")


class StreamChanges:
    """Owns where new streams start, and why some could not be begun yet.

    A stream that was read before goes on where it stopped. Another one begins as in a job that is restarted with it: at the start of the
    job, where LATEST is the moment of its first start (P3). So no record is missed that came since.
    """

    def __init__(self, dependencies: FetcherDependencies, shards: ShardLifecycle) -> None:
        self._job = dependencies
        self._shards = shards
        self._start = dependencies.start
        self._failures: dict[str, str] = {}
        """Why each stream could not be begun: logged once."""

    def start_with(self, start: StartingPosition) -> None:
        """The job was opened. `start`: where it began."""
        self._start = start

    async def apply(self) -> None:
        """Stop the streams that left the list, and begin those that came. What fails is tried again after the next look.

        Raises: DataLossError when records of a stream that came back are past retention.
        """
        wanted, opened = tuple(self._job.streams), self._job.discovery.opened
        for stream in sorted(opened.difference(wanted)):
            await self._stop(stream)
        for stream in wanted:
            if stream not in opened:
                await self._begin(stream)

    async def _stop(self, stream: str) -> None:
        self._job.discovery.opened.discard(stream)  # a listing that is under way is used no more
        await self._shards.stop_stream(stream)
        log.info("%s left the list of streams: it is not read any more", stream, extra=about(stream))
        try:
            await self._job.factory.release(stream)
        except RecordPublisherError as error:
            log.warning("what was used to read %s is not released: %s", stream, error, extra=about(stream))

    async def _begin(self, stream: str) -> None:
        job, shards = self._job, self._shards
        known = RestoredState(shards.owned.known_states(stream))
        list_stream = partial(job.discovery.list_stream, stream)
        try:
            listed = await list_restored(list_stream, (stream,), known, shards.missing, job.is_ours)
        except RecordPublisherError as error:
            self._log_failure(stream, str(error))
            return
        await check_for_data_loss(listed, known, (stream,), job, shards.retention, shards.missing)
        self._failures.pop(stream, None)
        job.discovery.opened.add(stream)
        shards.begin_stream(listed, initial_states(listed, known, self._start), unlisted_states(listed, known))
        text = "goes on where it stopped" if known.shards else f"begins at {self._start.type.value}"
        log.info("%s came into the list of streams: it %s", stream, text, extra=about(stream))

    def _log_failure(self, stream: str, reason: str) -> None:
        if self._failures.get(stream) != reason and stream not in self._job.discovery.not_found:
            log.warning("%s cannot be read yet, it is tried again: %s", stream, reason, extra=about(stream))
        self._failures[stream] = reason
