"""ShardEmission: how far one shard was emitted."""

from dataclasses import replace

from recordpublisher.publishers.records import RecordBatch, to_millis

from .shard_state import ShardState, latest


class ShardEmission:
    """Owns the emitted state and the counters of emitted records.

    `taken_over_below` is the global watermark at which the shard was taken over from another process (epoch ms). The
    shard may begin below it (E8).
    """

    def __init__(self, state: ShardState, taken_over_below: int | None) -> None:
        self.state = state
        self._taken_over_below = taken_over_below
        self.is_writing = False
        self.writing_from: int | None = None
        """The watermark of the first record that was taken and is not written (epoch ms)."""
        self.writing_arrival_ms: int | None = None
        """When that record arrived (epoch ms); None if no record is being written."""
        self.records = self.payload_bytes = 0
        self.last_emit_ms: int | None = None
        self.late_after_idle = self.late_after_takeover = 0

    def start_at(self, watermark: int | None) -> None:
        """Begin at the lowest watermark of the parents, unless this shard has a watermark of its own (W5)."""
        if self.state.watermark is None and watermark is not None:
            self.state = replace(self.state, watermark=watermark)

    def start_after(self, seen_ms: int | None) -> None:
        """Begin after the time at which the parents were last known to be open (epoch ms)."""
        self.state = replace(self.state, seen_ms=seen_ms)

    def begin_write(self, first_watermark: int | None, arrival_ms: int | None) -> None:
        """Note that records were taken to be written: the watermark of the first one, and when it arrived (epoch ms).

        Records that are then not written are read again, in a later run.
        """
        self.is_writing, self.writing_from, self.writing_arrival_ms = True, first_watermark, arrival_ms

    def reset(self) -> None:
        """Note that the run is over, and no write is in progress."""
        self.is_writing, self.writing_arrival_ms = False, None

    def advance(self, batch: RecordBatch, global_watermark: int | None, now_ms: int) -> None:
        """Move the position behind a batch that was written. `global_watermark` is the global watermark from before the write."""
        self.reset()
        self._count_late(count_late_after_idle(batch, self.state.watermark, global_watermark))
        self.state = _state_after(self.state, batch)
        if len(batch):
            self.records += len(batch)
            self.payload_bytes += batch.raw_bytes
            self.last_emit_ms = now_ms

    def end(self, open_ms: int | None = None) -> None:
        """End the shard, because its last record was emitted. `open_ms` is until when reads have shown the shard open (epoch ms)."""
        seen_ms = latest(self.state.seen_ms, self.state.arrival_ms, open_ms)
        self.state = replace(self.state, ended=True, continuation=None, seen_ms=seen_ms)

    def _count_late(self, records: int) -> None:
        watermark, limit = self.state.watermark, self._taken_over_below
        if limit is not None and (watermark is None or watermark < limit):
            self.late_after_takeover += records
        else:
            self.late_after_idle += records


def _state_after(state: ShardState, batch: RecordBatch) -> ShardState:
    position = batch.read_position
    if position is None:
        return state
    if position.continuation:
        return replace(state, continuation=position.sequence)
    if not len(batch):
        return replace(state, position=position, continuation=None)
    watermark = batch.watermark if batch.watermark is not None else state.watermark
    return replace(
        state,
        position=position,
        continuation=None,
        watermark=watermark,
        arrival_ms=to_millis(batch.records[-1].arrival),
        seen_ms=None,
    )


def count_late_after_idle(batch: RecordBatch, shard_watermark: int | None, global_watermark: int | None) -> int:
    """Return how many records are below the global watermark although they are not late in their shard.

    Both watermarks are from before the write, because after it the shard's next record counts already. A shard that
    watermarks wait for holds the global watermark at its next record. So only a shard that was idle or excluded, or
    that started below (W5), has such records.
    """
    if global_watermark is None or (shard_watermark is not None and shard_watermark >= global_watermark):
        return 0
    own, count = shard_watermark, 0
    for time, next_own in zip(batch.event_time_column, batch.watermarks or (), strict=True):
        if time < global_watermark and (own is None or time >= own):
            count += 1
        own = next_own
        if own >= global_watermark:
            break
    return count
