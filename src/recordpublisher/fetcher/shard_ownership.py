"""The port that decides which shards a fetcher reads: every shard of the job, or the shards whose leases its process holds.

`FixedOwnership` owns the shards of a process that reads every shard (ALONE).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, ClassVar

from ..publishers.errors import RecordPublisherError
from ..publishers.log_fields import log_extra
from ..publishers.safe_text import with_notes
from ..publishers.shards import Shard
from ..publishers.user_code import describe_error
from .checkpoints.shard_starts import initial_states, list_restored, unlisted_states
from .checkpoints.snapshot_format import RestoredState
from .dependencies import FetcherDependencies
from .shard_lifecycle import ShardLifecycle
from .shards.discovery import MissingShards, OwnedShards
from .shards.shard_table import ShardTable
from .sink import SinkContext
from .startup import OpenedJob, check_for_data_loss, open_job

StartTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Runs work in a background task of the run. An error of the work ends the run."""


class ShardOwnership(ABC):
    """Decides which shards a fetcher reads: adds shards to its table, and removes them.

    The fetcher calls these methods. By default a method that an implementation does not need does nothing.

    `has_leases`: whether the worker acquires shards one by one, by leases. A run then has no shards at first.
    """

    has_leases: ClassVar[bool] = False

    @abstractmethod
    async def open(self, context: SinkContext) -> OpenedJob:
        """Open the sink, restore state, and list the shards.

        Raises: StateError if stored state cannot be used; DataLossError if records were lost; StreamNotFoundError if a stream does not
        exist; KinesisError if a call fails.
        """

    def start_run(self, start_task: StartTask) -> None:  # noqa: B027 - optional on purpose
        """Called when a run starts, before the first reader does."""

    @abstractmethod
    async def discover(self) -> None:
        """Find shards that are created while the job runs, until cancelled."""

    @abstractmethod
    async def on_streams_read(self) -> None:
        """Called when the list of streams was read again."""

    @abstractmethod
    def add_children(self, children: Iterable[Shard]) -> None:
        """Called with the children that the last read of a shard has named. No listing may have shown them yet."""

    def reasons_not_ready(self) -> list[str]:
        """Return why nothing is read or written, as sentences for people; an empty list if the process is ready."""
        return []

    async def before_stop(self) -> None:  # noqa: B027 - optional on purpose
        """Called when the run was stopped, while records are still read and written."""

    async def after_run(self, *, is_cut_off: bool) -> None:  # noqa: B027 - optional on purpose
        """Called when a run is over. It may be called twice for one run.

        `is_cut_off`: whether an error, the drain timeout or a cancellation has ended the run.
        """

    @property
    def has_others(self) -> bool:
        """Whether other processes of the job continue to read."""
        return False

    async def close(self) -> None:  # noqa: B027 - optional on purpose
        """Close what is used to own shards, such as the group's store. Called last."""


# FixedOwnership is for a process that reads every shard (ALONE). It begins and stops whole streams when their list changes (S10).

log = logging.getLogger("recordpublisher.discovery")


class FixedOwnership(ShardOwnership):
    """Reads every shard of the job's streams, which may change while the job runs.

    - A stream that was read before continues where it stopped.
    - A new stream begins at the job's starting position. LATEST means the time of the job's first start, so that no record that has arrived
      since then is missed.
    """

    def __init__(
        self,
        job: FetcherDependencies,
        table: ShardTable,
        owned: OwnedShards,
        shards: ShardLifecycle,
        missing: MissingShards,
        request_checkpoint: Callable[[], None],
    ) -> None:
        self._job = job
        self._table = table
        self._shards = shards
        self._missing = missing
        self._request_checkpoint = request_checkpoint
        self._owned = owned
        self._starts = job.starts
        self._failures: dict[str, str] = {}
        """Why each stream could not be begun. It is kept so that the same reason is logged only once."""

    async def open(self, context: SinkContext) -> OpenedJob:
        """Open the sink, restore, and list the shards."""
        opened = await open_job(self._job, context, self._missing)
        self._owned.add_initial(opened.listed, opened.states, opened.unlisted_states)
        self._starts = opened.starts
        self._job.tracker.start_at(opened.lowest_watermark)
        return opened

    async def discover(self) -> None:
        """List every stream periodically."""
        await self._job.discovery.run(self._on_listing, self._begin)
        self._shards.complete_without_streams()

    def add_children(self, children: Iterable[Shard]) -> None:
        """Add the child shards that this process reads."""
        self._owned.add_new(children)

    async def on_streams_read(self) -> None:
        """Stop the streams that were removed from the list, and begin the streams that were added.

        A step that failed is tried again after the next read of the list.

        Raises: DataLossError if records of a stream that was added again are past retention.
        """
        wanted, opened = tuple(self._job.streams), self._job.discovery.opened
        for stream in sorted(opened.difference(wanted)):
            await self._stop(stream)
        for stream in wanted:
            if stream not in opened:
                await self._begin(stream)

    async def _on_listing(self, stream: str, listed: list[Shard]) -> None:
        # The stream may have been removed from the list while it was listed.
        if stream in self._job.discovery.opened:
            await self._owned.apply_listing(stream, listed)
            self._shards.on_listing(stream, listed)

    async def _stop(self, stream: str) -> None:
        """Stop a stream: records that were read and not emitted are dropped, its positions are kept, and no watermark waits for it."""
        self._job.discovery.opened.discard(stream)  # A listing of this stream that is in progress is then ignored.
        await self._shards.stop_shards([entry.key for entry in self._table if entry.shard.stream == stream])
        self._owned.remove_stream(stream)
        self._request_checkpoint()
        self._shards.start_readers()
        await self._shards.wait_for_stopped_readers()
        log.info(
            "stream %s is no longer in the job's list of streams, so it is no longer read",
            stream,
            extra=log_extra(stream),
        )
        try:
            await self._job.factory.release(stream)
        except RecordPublisherError as error:
            log.warning(
                "the resources of stream %s, such as its registered consumer, could not be released: %s",
                stream,
                error,
                extra=log_extra(stream),
            )

    async def _begin(self, stream: str) -> None:
        job, was_deleted = self._job, stream in self._job.discovery.deleted
        known = RestoredState({} if was_deleted else self._owned.known_states(stream))
        list_stream = partial(job.discovery.list_stream, stream)
        try:
            listed = await list_restored(list_stream, (stream,), known, self._missing, job.is_ours)
        except Exception as error:  # It may be an error of a plugin's `discover`.
            self._log_failure(
                stream, with_notes(error) if isinstance(error, RecordPublisherError) else describe_error(error)
            )
            return
        await check_for_data_loss(listed, known, (stream,), job, self._missing)
        if stream in job.discovery.deleted:
            # A stream of this name exists again. Its shards have the same ids as those of the deleted stream, so the records of that one
            # must be written first.
            if any(entry.shard.stream == stream and entry.is_open for entry in self._table):
                return
            self._owned.remove_stream(stream)
            if not was_deleted:
                return  # The stream was deleted while it was listed, so the listing may show the deleted stream.
        self._failures.pop(stream, None)
        job.discovery.opened.add(stream)
        self._owned.add_stream(listed, initial_states(listed, known, self._starts), unlisted_states(listed, known))
        self._shards.start_readers()
        text = "continues where it stopped" if known.shards else f"begins at {self._starts.default.type.value}"
        log.info("stream %s was added to the job's list of streams: it %s", stream, text, extra=log_extra(stream))

    def _log_failure(self, stream: str, reason: str) -> None:
        if self._failures.get(stream) != reason and stream not in self._job.discovery.not_found:
            log.warning(
                "stream %s cannot be read yet; the job tries again: %s", stream, reason, extra=log_extra(stream)
            )
        self._failures[stream] = reason
