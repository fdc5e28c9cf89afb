"""Opens a job: restores stored state, lists shards, and decides where each shard starts (P3, S5). Also closes what the job uses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Mapping, Sequence

import msgspec

from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.user_code import close_or_leave

from ..publishers.properties.job_properties import JOB_NAME
from ..publishers.properties.reading_properties import INITIAL_POSITION
from ..publishers.properties.times_and_sizes import iso_time
from ..publishers.safe_text import counted, few_of
from ..publishers.shards import Shard
from .checkpoints.shard_starts import (
    Starts,
    data_loss_error,
    initial_states,
    is_startable,
    list_restored,
    shards_no_longer_listed,
    shards_past_retention,
    shards_read_long_ago,
    shards_with_unread_children,
    unlisted_states,
)
from .checkpoints.snapshot_format import RestoredState, merge_snapshots, overlay, warn_of_other_streams
from .conditional_store import wait_for_store
from .dependencies import FetcherDependencies
from .pipeline.checked_sink_calls import check_returned_state, close_sink, naming_sink, states_of_sink
from .shards.discovery import MissingShards
from .shards.shard_state import ShardState
from .sink import CommittingSink, Sink, SinkContext, State
from .watermarks import lowest_active

log = logging.getLogger("recordpublisher.start")


async def open_job(job: FetcherDependencies, context: SinkContext, missing: MissingShards) -> OpenedJob:
    """Open the sink, restore state, list the shards, check for lost records, and replace LATEST by a time.

    The state store takes precedence over `restore=`, so a job that is started again with the same arguments continues at its last
    checkpoint. State that the sink has stored takes precedence over both.
    """
    order_of = job.factory.order_of
    # 1. List the shards before positions are taken over. If the streams do not exist, or the service cannot be reached, this start must
    #    fail without ending the process that reads them now. The listing is not used, because it may be old when sink and store have
    #    answered.
    if job.alone is not None:
        await job.discovery.list_all()
    # 2. Take over the stored positions. From here on an earlier start can store nothing more.
    with naming_sink(job.sink, "open"):
        sink_state = await job.sink.open(context)
    may_have_positions = type(job.sink).stored_positions is not Sink.stored_positions
    if sink_state is None and may_have_positions and not isinstance(job.sink, CommittingSink):
        with naming_sink(job.sink, "stored_positions"):
            check_returned_state(job.sink, await job.sink.stored_positions())
    generation, stored = 0, list[State]()
    if job.alone is not None:
        generation, stored = await wait_for_store(job.alone.open, job.settings.store_outages)
    restored = overlay(merge_snapshots(job.restore, order_of), merge_snapshots(stored, order_of))
    if in_sink := states_of_sink(job.sink, "open", sink_state):
        restored = overlay(restored, merge_snapshots(in_sink, order_of))
    # 3. List the shards, now that the stored states are known.
    opened = job.discovery.opened
    listed = await list_restored(job.discovery.list_all, opened, restored, missing, job.is_ours)
    # 4. Decide where each shard begins.
    await check_for_data_loss(listed, restored, opened, job, missing)
    pinned_ms = restored.pinned_ms if job.starts.is_pinned else await _pinned_ms(restored, job)
    starts = job.starts.with_stored_start(pinned_ms)
    states = initial_states(listed, restored, starts)
    ours = [shard for shard in listed if job.is_ours(shard)]
    unlisted = unlisted_states(listed, restored)
    warn_of_other_streams({key.rpartition("/")[0] for key in restored.shards}, job.streams)
    count = sum(shard.key in restored.shards for shard in ours)
    log.info(
        "the job reads %s of %s; it %s",
        counted(len(ours), "shard"),
        few_of(sorted(job.streams)),
        where_it_begins(
            count,
            restored.taken_ms,
            starts.default,
            job.job_name,
            is_latest=job.starts.default.is_tip,
            others=len(restored.shards) - count,
        ),
    )
    return OpenedJob(listed, states, starts, pinned_ms, max(generation, restored.generation + 1), unlisted)


class OpenedJob(msgspec.Struct, frozen=True):
    """The state that a job starts from.

    - `listed`: every shard.
    - `states`: the state of each shard by `Shard.key`.
    - `starts`: where new shards start.
    - `pinned_ms`: the time that replaced LATEST, if the job began there.
    - `generation`: the number of this start of the job. It is higher than the number in every snapshot that was found.
    - `unlisted_states`: the known states of shards that the listing lacks.
    """

    listed: Sequence[Shard]
    states: Mapping[str, ShardState]
    starts: Starts
    pinned_ms: int | None
    generation: int
    unlisted_states: Mapping[str, ShardState] = msgspec.field(default_factory=dict)

    @property
    def lowest_watermark(self) -> int | None:
        """The global watermark at the start of a job: the lowest watermark of the shards that are read from now on.

        It is None if one of these shards has no watermark, because its first record may have any event time.
        """
        return lowest_active(self.states[shard.key].watermark for shard in self.listed if self._is_readable(shard))[1]

    def _is_readable(self, shard: Shard) -> bool:
        return not self.states[shard.key].ended and is_startable(shard, self.states)


def where_it_begins(
    count: int, taken_ms: int | None, start: StartingPosition, job_name: str | None, *, is_latest: bool, others: int = 0
) -> str:
    """Return where the job begins, as a clause for the log.

    - `count`: number of the job's shards that have a stored position.
    - `taken_ms`: when these positions were stored (epoch ms), or None if that is not known.
    - `is_latest`: whether the job begins at LATEST, for which `start` has a time.
    - `others`: number of stored positions of shards that the job does not read, for example because they are past retention.
    """
    none = f"{counted(others, 'stored position')} found, but of other shards" if others else "no positions are stored"
    at = "" if start.timestamp_ms is None else f" {iso_time(start.timestamp_ms)}"
    if not count and is_latest:
        unread = f"older records are not read ({INITIAL_POSITION.key})"
        return f"begins at LATEST, as of{at}: {none}, and {unread}"
    if not count:
        return f"begins at {start.type.value}{at}: {none}"
    stored = "" if taken_ms is None else f", stored at {iso_time(taken_ms)}"
    of_whom = "" if job_name else f"; they may belong to another job, because {JOB_NAME.key} is not set"
    return f"continues at stored positions of {counted(count, 'shard')}{stored}{of_whom}"


async def check_for_data_loss(
    listed: Sequence[Shard],
    restored: RestoredState,
    streams: Collection[str],
    job: FetcherDependencies,
    missing: MissingShards,
) -> None:
    """Fail if records were lost. With `flink.state.dataloss=CONTINUE`, log the loss; readers then count each gap that they find.

    Only positions that are almost a day old are checked, because no stream keeps records for less than a day.

    Raises: DataLossError if records were lost and the job does not accept that.
    """
    lost = list(filter(missing.is_expired, shards_no_longer_listed(listed, restored, streams)))
    old = shards_read_long_ago(restored, job.clock.now_ms())
    if (retention := job.retention) is not None and old:
        of_old = {key.rsplit("/", 1)[0] for key in old} & set(streams)
        oldest = {stream: await retention.oldest_retained_ms(stream) for stream in of_old}
        lost += shards_with_unread_children(listed, restored, oldest)
        if not job.settings.accepts_loss:
            ours = [shard for shard in listed if shard.key in old and job.is_ours(shard)]
            lost += await shards_past_retention(ours, restored, retention)
    if lost and not job.settings.accepts_loss:
        raise data_loss_error(lost, restored)
    if lost:
        log.error("%s; the job continues because flink.state.dataloss=CONTINUE", data_loss_error(lost, restored).loss)


async def _pinned_ms(restored: RestoredState, dependencies: FetcherDependencies) -> int:
    """Return the time (epoch ms) that replaces LATEST, or an age such as "one hour ago". A restored time is used again."""
    if restored.pinned_ms is not None:
        return restored.pinned_ms
    now_ms = await dependencies.pin_latest(dependencies.streams[0])
    return dependencies.starts.default.pinned_at(now_ms).timestamp_ms or now_ms


async def close_dependencies(dependencies: FetcherDependencies, *more: Awaitable[None]) -> None:
    """Close publishers, sink and state store, and await what else the caller closes (`more`), all at the same time.

    Publishers and sink may take `flink.job.drain.timeout` each.

    Raises: the first error of a close, after all of them were closed.
    """
    seconds = dependencies.settings.drain_ms / 1000
    stores = [] if dependencies.alone is None else [dependencies.alone.close()]
    closing = [
        close_or_leave(dependencies.factory, seconds),
        close_sink(dependencies.sink, seconds),
        *stores,
        *more,
    ]
    for result in await asyncio.gather(*closing, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
