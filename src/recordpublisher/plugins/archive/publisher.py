"""Reads one shard: its archived files, then the live stream, and the files again if they have records that the stream has lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from recordpublisher.fetcher.pipeline.process_suspension import GAP_SECONDS
from recordpublisher.fetcher.shards.read_state import latest
from recordpublisher.fetcher.shards.retention_check import UNKNOWN_MS, RetentionGap, may_have_gap
from recordpublisher.publishers.base import BatchConsumer, RecordPublisher, RunResult, make_publisher
from recordpublisher.publishers.errors import ConfigurationError, DataLossError
from recordpublisher.publishers.log_fields import log_extra
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition, next_position
from recordpublisher.publishers.properties.job_properties import ON_DATA_LOSS
from recordpublisher.publishers.properties.reading_properties import ARCHIVE_LIVE, ARCHIVE_UNPROVEN
from recordpublisher.publishers.records import RECORD_OVERHEAD_BYTES, RecordBatch, RecordColumns, UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import OldestRecord, Shard

from .archive import Archive
from .next_step import (
    OrderKey,
    RangeFile,
    Seam,
    Step,
    is_complete,
    next_step,
    order_key_before,
    order_key_of,
    position_from,
    starting_order_key,
)
from .rows import ArchivedRows, DecodedRows, first_row_after

log = logging.getLogger("recordpublisher.archive")
_NOT_ASKED = (
    f"and the stream was not asked for them because of {ARCHIVE_LIVE.key}=NONE: with POLLING the job reads them from the stream, "
    "if it still has them"
)
MOST_RECORDS = 10_000
"""Most records of a batch, as in one response of Kinesis."""


class ArchivePublisher(RecordPublisher):
    """Reads one shard: first its archived files, then the live stream from where the files end.

    Positions are positions of the live stream, so a job may be restarted with another publisher. After each live read the publisher checks
    whether records between its position and the batch have expired. A check before the read would miss records that expire during the read.
    """

    def __init__(self, archive: Archive, shard: Shard, start: StartingPosition, metrics: ShardMetrics) -> None:
        self._archive, self._shard, self._metrics = archive, shard, metrics
        self._position = start
        self._place = starting_order_key(start, archive.order_of)
        self._since_ms = start.timestamp_ms if start.type is PositionType.AT_TIMESTAMP else None
        self._seen_ms = UNKNOWN_MS if self._place is not None else None
        self._is_owed = self._place is not None
        self._files: Sequence[RangeFile] | None = None
        self._next = 0
        self._live: RecordPublisher | None = None
        self._is_live_compared = False
        self._has_gap = self._is_complete = False
        self._told_ms: int | None = None
        self._budget: int | None = None
        self._last_arrival_ms: int | None = None
        self._lost_seconds = 0.0

    def set_read_budget(self, held_bytes: int) -> None:
        """Publish batches of at most `held_bytes` from now on, or of one record if that is larger."""
        self._budget = held_bytes
        if self._live is not None:
            self._live.set_read_budget(held_bytes)

    def set_seen(self, seen_ms: int | None) -> None:
        """Remember that the shard had no record after the starting position at the time `seen_ms` (epoch ms).

        If this time is known, records that are missing after the start count as lost.
        """
        self._seen_ms = latest(self._seen_ms, seen_ms)
        self._is_owed = self._is_owed or seen_ms is not None

    async def run(self, consumer: BatchConsumer) -> RunResult:
        """Publish the shard's archived records, then its live ones.

        Raises: DataLossError if records are neither in the archive nor in the stream, and the job does not accept their loss; StateError if
        a file cannot be read; the errors of the live publisher.
        """
        while not self._is_complete:
            if self._live is not None:
                if (result := await self._run_live(self._live, consumer)) is not None:
                    return result
                continue
            step, file = await self._next_step()
            if step is Step.READ and file is not None:
                await self._read(file, consumer)
            elif step is Step.LIVE:
                await self._go_live()
            elif step is Step.SKIP and file is not None:
                self._begin_at(file)
            elif step is Step.LOST and file is not None:
                self._lose(await self._hole(file))
                self._place, self._has_gap = file.after, True
            else:
                if step is Step.LOST:
                    self._lose(await self._missing_end())
                await self._end(consumer)
        return RunResult.COMPLETE

    # --- what comes next --------------------------------------------------------------------------------------------------------

    async def _next_step(self) -> tuple[Step, RangeFile | None]:
        """Return the next step and the next file. If a file seems to be missing, list the files again first."""
        archive, shard = self._archive, self._shard
        if self._files is None:
            await archive.list_once(shard.stream)
            self._is_owed = self._is_owed or await self._follows_open_parents()
            if await self._starts_live():
                return (Step.LIVE, None) if await archive.is_live_now(shard) else (Step.END, None)
            self._use(await self._listed(again=False))
            await self._find_start()
        file = self._next_file()
        if file is not None and file.follows(self._place):
            return Step.READ, file
        self._use(await self._listed(again=True))
        file = self._next_file()
        document = await archive.document(shard)
        end = None if document is None else document.end
        is_owed = self._is_owed or self._place is not None
        is_at_end = end is not None and is_complete(self._place, end.through, archive.order_of, is_owed=True)
        is_live = archive.is_live(shard) if is_at_end and file is None else await archive.is_live_now(shard)
        seam = Seam(
            self._place,
            file,
            is_complete=end is not None and is_complete(self._place, end.through, archive.order_of, is_owed or is_live),
            is_owed=is_owed,
            is_live=is_live,
        )
        if file is None and end is None and archive.live is None:
            # Without a live stream the last file ends the read. But if children of the shard have files, the shard's own last files
            # are missing.
            return (Step.LOST if await self._has_archived_children() else Step.END), None
        step = next_step(seam)
        if step is Step.LOST and file is None and archive.live is None:
            # The files may have been published after their listing, and before the document was read.
            self._use(await self._listed(again=True))
            if (file := self._next_file()) is not None and file.follows(self._place):
                return Step.READ, file
        if file is not None and step in (Step.LOST, Step.SKIP) and seam.is_live:
            step = next_step(replace(seam, stream_has_following=await self._stream_has(file, is_owed=seam.is_owed)))
        return step, file

    def _use(self, files: Sequence[RangeFile]) -> None:
        self._files, self._next = files, 0

    def _next_file(self) -> RangeFile | None:
        files, place = self._files or (), self._place
        while self._next < len(files) and place is not None and files[self._next].through <= place:
            self._next += 1
        return files[self._next] if self._next < len(files) else None

    async def _listed(self, *, again: bool) -> Sequence[RangeFile]:
        files = await self._archive.catalogue.files(self._shard, again=again)
        if not self._archive.allows_unproven and (old := next((file for file in files if not file.is_proven), None)):
            reason = (
                f"{old.paths[0]} in {self._archive.catalogue.place} was written without flink.sink.archive, so its name has no range, and "
                "records between it and other files may be missing"
            )
            raise ConfigurationError(
                ARCHIVE_UNPROVEN.key,
                "false",
                "true, to read the archive although records may be missing",
                reason=reason,
            )
        return files

    async def _follows_open_parents(self) -> bool:
        """Return whether the shard was never read and has archived parents. If so, each missing record of the shard counts as lost."""
        if self._position.type is not PositionType.TRIM_HORIZON or not self._shard.parents:
            return False
        open_ms = await self._archive.parents_last_open_ms(self._shard)
        self._seen_ms = latest(self._seen_ms, open_ms)
        return open_ms is not None

    async def _starts_live(self) -> bool:
        """Return whether the read starts in the live stream: at LATEST, or at a time that the stream still has."""
        if self._position.type is PositionType.LATEST:
            return True
        if self._since_ms is None or self._archive.retention is None:
            return False
        oldest_ms = await self._archive.retention.oldest_retained_ms(self._shard.stream)
        return oldest_ms is not None and self._since_ms >= oldest_ms

    async def _find_start(self) -> None:
        """If the read starts at a time, skip the files before it. Find the first file to read by bisection."""
        files = [file for file in self._files or () if file.paths]
        if self._since_ms is None or not files:
            return
        low, high = 0, len(files)
        while low < high:
            middle = (low + high) // 2
            opened = await self._archive.catalogue.open(files[middle])
            try:
                rows = await opened.rows(0) if opened.groups else None
            finally:
                opened.close()
            if rows is None or not len(rows) or rows.arrival_millis[0] < self._since_ms:
                low = middle + 1
            else:
                high = middle
        self._use(files[max(low - 1, 0) :])
        if low:
            self._place = files[low - 1].after
        else:
            self._begin_at(files[0])

    def _begin_at(self, file: RangeFile) -> None:
        """Start at `file`, the shard's first file. If an older file must have existed, warn of that once in a job."""
        self._place = file.after
        if file.is_continuation and self._archive.may_warn_of_late_beginning():
            text = (
                "no file of %s has the records of %s up to %s, so the read of the shard begins after that. "
                "Other shards may begin at other times: `recordpublisher doctor` says from when all shards are there"
            )
            place, upto = self._archive.catalogue.place, _shown(file.after_text)
            log.warning(text, place, self._shard.key, upto, extra=log_extra(self._shard.key))

    async def _stream_has(self, file: RangeFile, *, is_owed: bool) -> bool:
        """Return whether the stream still has the records between the reader's position and the first record of `file`.

        `is_owed`: whether a missing record counts as lost. If so, the stream must have all of these records; otherwise one is enough.
        """
        archive, retention = self._archive, self._archive.retention
        assert retention is not None
        if is_owed:
            position = self._last_position
            gap = await retention.gap_after(
                self._shard, position, UNKNOWN_MS if self._seen_ms is None else self._seen_ms
            )
            return gap is RetentionGap.NONE
        oldest = await archive.oldest_record(self._shard)
        if oldest is None or oldest.sequence is None or file.after is None:
            return False
        return order_key_before(SequenceNumber(oldest.sequence), archive.order_of) < file.after

    async def _has_archived_children(self) -> bool:
        children = [
            each
            for each in (await self._archive.shards(self._shard.stream)).values()
            if self._shard.shard_id in each.parents
        ]
        return any([await self._archive.catalogue.files(child, again=False) for child in children])

    # --- files ------------------------------------------------------------------------------------------------------------------

    async def _read(self, file: RangeFile, consumer: BatchConsumer) -> None:
        """Publish the rows of `file` after the current position. Stop early if the consumer does not continue at the end of a batch."""
        try:
            opened = await self._archive.catalogue.open(file)
        except FileNotFoundError:
            log.info(
                "a file of %s has disappeared, so the archive is listed again",
                self._shard.key,
                extra=log_extra(self._shard.key),
            )
            self._use(await self._listed(again=True))
            return
        try:
            for group in range(opened.groups):
                if not await self._read_group(opened, group, file, consumer):
                    return
        finally:
            opened.close()
        if self._place is None or self._place < file.through:
            if self._since_ms is not None:
                # The read has not reached its start by time yet, so the position of the job stays the same.
                self._place = file.through
            else:
                await self._publish(RecordColumns(records=[]), file.end, consumer)

    async def _read_group(self, opened: ArchivedRows, group: int, file: RangeFile, consumer: BatchConsumer) -> bool:
        buffer, order_of, held = self._archive.buffer, self._archive.order_of, None
        try:
            while True:
                if held is None or held.columns is None:
                    held = DecodedRows(await opened.rows(group))
                    buffer.add(held)
                rows = held.columns
                assert rows is not None
                start = self._first_since(rows, first_row_after(rows, self._place, order_of))
                if start >= len(rows):
                    return True
                buffer.use(held)
                stop = min(start + self._count(held), len(rows))
                end = _position_after(rows, stop)
                if stop == len(rows) and group == opened.groups - 1:
                    end = file.end
                part = rows[start:stop]
                del rows
                if not await self._publish(part, end, consumer):
                    return False
                if end == file.end:
                    return True
                del part
        finally:
            if held is not None:
                buffer.drop(held)

    def _first_since(self, rows: RecordColumns, start: int) -> int:
        if self._since_ms is None:
            return start
        since = self._since_ms
        arrivals = rows.arrival_millis
        first = next((index for index in range(start, len(rows)) if arrivals[index] >= since), len(rows))
        self._since_ms = since if first == len(rows) else None
        return first

    def _count(self, held: DecodedRows) -> int:
        assert held.columns is not None
        each = RECORD_OVERHEAD_BYTES + held.payload_bytes // max(len(held.columns), 1)
        return MOST_RECORDS if self._budget is None else max(1, min(MOST_RECORDS, self._budget // each))

    async def _publish(self, rows: RecordColumns, end: SequenceNumber, consumer: BatchConsumer) -> bool:
        """Pass a batch to the consumer. Return whether the consumer continues at the end of the batch."""
        if len(rows):
            self._last_arrival_ms = rows.arrival_millis[-1]
        behind = None if self._last_arrival_ms is None else max(1, self._archive.clock.now_ms() - self._last_arrival_ms)
        batch = RecordBatch(
            self._shard,
            rows,
            millis_behind_latest=behind,
            read_position=end,
            raw_count=len(rows),
            raw_bytes=sum(map(len, rows.data)),
            after_gap=self._has_gap,
        )
        del rows
        self._metrics.count_read(batch)
        self._has_gap = False
        consuming = consumer(batch)
        del batch  # This frees its memory once it was emitted (P6).
        returned = await consuming
        self._moved_to(returned)
        if returned == end and self._last_arrival_ms is not None:
            self._seen_ms = self._last_arrival_ms
        return returned == end

    def _moved_to(self, returned: SequenceNumber | None) -> None:
        if returned is None or returned.continuation:
            return
        before = self._place
        self._position = next_position(self._position, returned)
        self._place = order_key_of(returned, self._archive.order_of)
        self._is_owed = True
        if before is not None and self._place < before:
            self._files = None

    # --- the live stream --------------------------------------------------------------------------------------------------------

    async def _go_live(self) -> None:
        archive = self._archive
        assert archive.live is not None
        start = self._position
        self._seen_ms = latest(self._seen_ms, await archive.tip_ms(self._shard, self._place, again=False))
        self._live = await make_publisher(archive.live, self._shard, start, self._metrics)
        self._is_live_compared = False
        self._lost_seconds = archive.suspension.lost_seconds
        if self._budget is not None:
            self._live.set_read_budget(self._budget)
        log.info(
            "%s is now read from the live stream instead of the archive, after %s",
            self._shard.key,
            self._last_position or "its start",
            extra=log_extra(self._shard.key),
        )

    async def _run_live(self, live: RecordPublisher, consumer: BatchConsumer) -> RunResult | None:
        """Run the live publisher. Return its result, or None if `run` must look for the next step."""
        try:
            result = await live.run(lambda batch: self._accept_live(batch, consumer))
        except _BackToFilesError:
            log.info(
                "%s is read from the archive again, because its next records have expired in the stream, and the archive has them",
                self._shard.key,
                extra=log_extra(self._shard.key),
            )
            self._live = None
            return None
        except DataLossError as error:
            self._live = None
            self._use(await self._listed(again=True))
            file = self._next_file()
            if file is None or not file.follows(self._place):
                self._lose(error.loss, error)
                await self._end(consumer)
            return None
        self._is_complete = result is RunResult.COMPLETE
        return result

    async def _accept_live(self, batch: RecordBatch, consumer: BatchConsumer) -> SequenceNumber | None:
        if len(batch) or batch.raw_count or batch.millis_behind_latest == 0:
            await self._look_for_gap(batch)
        arrival_ms = batch.arrival_millis[-1] if len(batch) else None
        tip_ms = self._read_ms if batch.millis_behind_latest == 0 else None
        end = batch.read_position
        if self._has_gap and not batch.is_empty_read:
            batch, self._has_gap = replace(batch, after_gap=True), False
        consuming = consumer(batch)
        del batch  # This frees its memory once it was emitted (P6).
        returned = await consuming
        self._lost_seconds = self._archive.suspension.lost_seconds
        self._moved_to(returned)
        if returned == end:
            self._seen_ms = latest(self._seen_ms if arrival_ms is None else arrival_ms, tip_ms)
        return returned

    @property
    def _read_ms(self) -> int:
        """The latest time up to which the reader can have read the stream (epoch ms).

        It is the current time minus the time for which the process was suspended since the last batch. The last response may have arrived
        before that suspension.
        """
        suspended = self._archive.suspension.lost_seconds - self._lost_seconds
        return self._archive.clock.now_ms() - round(suspended * 1000)

    async def _look_for_gap(self, batch: RecordBatch) -> None:
        """Check whether records between the last position and this batch expired before they were read.

        Raises: DataLossError if they are lost, and the job does not accept that; _BackToFilesError if the files have them.
        """
        archive, shard = self._archive, self._shard
        if self._place is None and not self._is_owed and self._position.type is PositionType.TRIM_HORIZON:
            await self._compare_beginnings(batch)
            return
        archive.suspension.check()
        seen_ms = latest(self._seen_ms, self._told_ms)
        if archive.retention is None or not may_have_gap(seen_ms, archive.clock.now_ms()):
            return
        assert seen_ms is not None
        if await self._was_read_before_suspension(batch):
            return
        if await self._gap(batch, seen_ms) is RetentionGap.NONE:
            return
        self._use(await self._listed(again=True))
        file = self._next_file()
        if file is not None and file.follows(self._place):
            raise _BackToFilesError
        tip_ms = await archive.tip_ms(shard, self._place, again=True)
        gap = RetentionGap.LOST if tip_ms is None else await self._gap(batch, max(seen_ms, tip_ms))
        if gap is RetentionGap.LOST and not (len(batch) or batch.raw_count):
            gap = RetentionGap.NOT_CHECKED
        if gap is RetentionGap.LOST:
            self._lose(await self._early_end())
            self._has_gap = True
        elif gap is RetentionGap.NOT_CHECKED:
            self._metrics.add("retention_not_checked")
            text = (
                "the stream shows no record of %s after %s, which is past the stream's retention. The read continues, but "
                "it is not known whether records in between were lost"
            )
            log.warning(text, shard.key, await self._last(), extra=log_extra(shard.key))
        if gap is not RetentionGap.NONE:
            self._told_ms = archive.clock.now_ms()

    async def _gap(self, batch: RecordBatch, seen_ms: int) -> RetentionGap:
        assert self._archive.retention is not None
        next_ms = batch.arrival_millis[0] if len(batch) else self._archive.clock.now_ms()
        return await self._archive.retention.gap_after(self._shard, self._last_position, seen_ms, next_ms)

    async def _was_read_before_suspension(self, batch: RecordBatch) -> bool:
        """Return whether the batch may have been read before the process was suspended.

        Such a batch does not show which records expired during the suspension.
        """
        if self._archive.suspension.lost_seconds - self._lost_seconds < GAP_SECONDS:
            return False
        if not len(batch):
            return True
        assert self._archive.retention is not None
        oldest_ms = await self._archive.retention.oldest_retained_ms(self._shard.stream)
        return batch.arrival_millis[0] < (self._read_ms if oldest_ms is None else oldest_ms)

    async def _compare_beginnings(self, batch: RecordBatch) -> None:
        """Check once whether the archive has older records than the stream's first one. It may have had no file when the read began.

        Raises: _BackToFilesError if the archive has older records.
        """
        if self._is_live_compared:
            return
        self._is_live_compared = True
        files = await self._listed(again=True)
        first = next((file for file in files if file.paths), None)
        if first is None:
            return
        if not len(batch) or first.after is None or first.after < self._before(batch.records[0]):
            self._use(files)
            raise _BackToFilesError

    def _before(self, record: UserRecord) -> OrderKey:
        return order_key_before(
            SequenceNumber(record.sequence_number, record.sub_sequence_number), self._archive.order_of
        )

    # --- ends and losses --------------------------------------------------------------------------------------------------------

    async def _end(self, consumer: BatchConsumer) -> None:
        """End the shard, and pass its children to the consumer: those that its document names, and those that name it as a parent."""
        document = await self._archive.document(self._shard)
        named = () if document is None or document.end is None else document.end.children
        known = await self._archive.shards_with(self._shard.stream, named)
        children = [
            *named,
            *(name for name, each in known.items() if self._shard.shard_id in each.parents and name not in named),
        ]
        for child in children:
            if child not in known:
                self._lose(f"{self._shard.key} became {child}, which is neither archived nor listed")
        found = tuple(known[child] for child in children if child in known)
        if found:
            await consumer(RecordBatch(self._shard, [], child_shards=found))
        self._is_complete = True

    def _lose(self, text: str, cause: DataLossError | None = None) -> None:
        """Raise DataLossError for lost records. If the job accepts the loss, count and log it instead."""
        if not self._archive.accepts_loss:
            raise cause or DataLossError(text)
        self._metrics.add("retention_gaps")
        log.error("%s; the job continues because %s=CONTINUE", text, ON_DATA_LOSS.key, extra=log_extra(self._shard.key))

    async def _hole(self, file: RangeFile) -> str:
        place, upto = self._archive.catalogue.place, _shown(file.after_text)
        text = f"records of {self._shard.key} after {await self._last()} up to {upto} are in no file of {place}"
        if self._archive.live is None:
            return f"{text}, {_NOT_ASKED}"
        if not self._archive.is_live(self._shard):
            return f"{text}, and the stream no longer has the shard"
        return (
            f"{text}, and the stream has nothing before {_shown_record(await self._archive.oldest_record(self._shard))}"
        )

    async def _missing_end(self) -> str:
        last = await self._last()
        if self._archive.live is not None:
            return text_of_missing_shard(self._shard, last)
        place = self._archive.catalogue.place
        return f"the last records of {self._shard.key}, after {last}, are in no file of {place}, {_NOT_ASKED}"

    async def _early_end(self) -> str:
        return text_of_early_end(self._shard, await self._last(), await self._archive.oldest_record(self._shard))

    async def _last(self) -> str:
        return f"{self._last_position or 'its start'}{arrival_text(self._last_arrival_ms or self._seen_ms or None)}"

    @property
    def _last_position(self) -> SequenceNumber | None:
        if self._position.skip_through is not None:
            return self._position.skip_through
        number = self._position.sequence_number
        return None if number is None else SequenceNumber(number)


class _BackToFilesError(Exception):
    """Ends a live read before a batch, because the archive has records that come before the batch."""


def text_of_early_end(shard: Shard, last: str, oldest: OldestRecord | None) -> str:
    """Return the error message for lost records: the archive ends at `last`, before `oldest`, the oldest record of the stream."""
    return f"the archive of {shard.key} ends after {last}, the stream begins at {_shown_record(oldest)}: the records in between are lost"


def text_of_missing_shard(shard: Shard, last: str) -> str:
    """Return the error message for a shard that no longer exists, and whose archive ends at `last`, before the shard's end."""
    return (
        f"the archive of {shard.key} ends after {last} without the shard's end, and the stream no longer has the shard"
    )


def arrival_text(at_ms: int | None) -> str:
    """Return a time of arrival (epoch ms) in words, or an empty text if it is not known."""
    return (
        ""
        if at_ms is None
        else f" (arrived {datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec='milliseconds')})"
    )


def _position_after(rows: RecordColumns, stop: int) -> SequenceNumber:
    """Return the position after the first `stop` rows.

    If the next row belongs to another record, the position is after a whole record. Otherwise it is inside an aggregate, because more of it
    may follow.
    """
    number, part = rows.sequence_numbers[stop - 1], rows.sub_sequence_numbers[stop - 1]
    if stop < len(rows) and rows.sequence_numbers[stop] != number:
        return SequenceNumber(number)
    return SequenceNumber(number, part)


def _shown(after: str) -> str:
    position = position_from(after.removeprefix("AT-"))
    return f"{'the record ' if after.startswith('AT-') else ''}{position}"


def _shown_record(record: OldestRecord | None) -> str:
    return (
        "what it has now"
        if record is None or record.sequence is None
        else f"{record.sequence}{arrival_text(record.arrival_ms)}"
    )
