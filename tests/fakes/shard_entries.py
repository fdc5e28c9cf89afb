"""Shard entries, and batches with watermarks."""

from collections.abc import Callable

from recordpublisher.fetcher.settings import IdleIntervals
from recordpublisher.fetcher.shards.shard_entry import NO_LISTENER, ShardEntry, ShardListener, ShardStage
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

START = StartingPosition.trim_horizon()


class Notices(ShardListener):
    """Records which shards have changed, and which have ended; `on_change` and `on_emission` follow from each."""

    def __init__(
        self,
        on_change: Callable[[ShardEntry], None] = lambda entry: None,
        on_emission: Callable[[ShardEntry, RecordBatch], None] = lambda entry, batch: None,
    ) -> None:
        self.changed: list[ShardEntry] = []
        self.ended: list[ShardEntry] = []
        self._on_change = on_change
        self._on_emission = on_emission

    def on_changed(self, entry: ShardEntry) -> None:
        self.changed.append(entry)
        self._on_change(entry)

    def on_emitted(self, entry: ShardEntry, batch: RecordBatch) -> None:
        self._on_emission(entry, batch)

    def on_ended(self, entry: ShardEntry) -> None:
        self.ended.append(entry)


def shard(shard_id: str = "a", *parents: str, **more) -> Shard:
    return Shard("s", shard_id, parents, **more)


def entry(
    shard_id: str = "a",
    *parents: str,
    stage: ShardStage = ShardStage.READING,
    watermark: int | None = None,
    listener: ShardListener = NO_LISTENER,
    idle_ms: int = -1,
) -> ShardEntry:
    state = ShardState(START, watermark=watermark)
    made = ShardEntry(shard(shard_id, *parents), state, listener, idle_intervals=IdleIntervals(idle_ms))
    return in_stage(made, stage)


def in_stage(made: ShardEntry, stage: ShardStage) -> ShardEntry:
    """Bring an entry without queued records to a stage, from one before it."""
    if stage is not ShardStage.WAITING and made.stage is ShardStage.WAITING:
        made.start_reading()
    if stage is ShardStage.DRAINING:
        made.reading.end(())
    if stage is ShardStage.ENDED:
        made.reading.end(())
        made.emission.end()
    return made


def watermarked(*watermarks: int, first: int = 0, shard_id: str = "a", behind: int | None = 0) -> RecordBatch:
    """A batch of records numbered from `first`, with these event times and watermarks."""
    records = [UserRecord(b"data", str(first + index), 1.0) for index in range(len(watermarks))]
    last = SequenceNumber(records[-1].sequence_number) if records else None
    times = tuple(watermarks)
    return RecordBatch(
        shard(shard_id), records, behind, last, (), len(records), 4 * len(records), None, times, times or None
    )


def marker(sequence: str = "7") -> RecordBatch:
    """A batch without records: an empty event of a subscription (F6)."""
    return RecordBatch(shard(), [], 0, SequenceNumber(sequence, continuation=True))


class AlwaysRunning:
    """The running time of a process that is never suspended: that of its clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @property
    def running_seconds(self) -> float:
        return self._clock.monotonic()

    def check(self) -> None:
        pass


class StoppedClock:
    """A clock that stands still until a test sets it."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def now_ms(self) -> int:
        return round(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def boottime(self) -> float:
        return self.monotonic()
