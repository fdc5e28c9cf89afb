"""Adds the reports of all workers to the progress of the job."""

from dataclasses import dataclass

from recordpublisher.fetcher.monitoring.worker_view import WorkerProgress
from recordpublisher.publishers.safe_text import counted

from ..lag.rates import Rates


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of all workers together.

    - `per_second`: recently finished records per second, including records that were left out; None if no time has passed.
    - `lag_ms`: age of the oldest unfinished record, in the shard that is furthest behind (ms); None if not known.
    - `unfinished`: number of records that were read and that the sink has not finished; None if not known.
    - `left`: number of records that the sink has dropped, and that the next start reads again.
    - `unread_ms`: how long the job has not read one of its shards (ms); None if it reads every shard.
    - `read_failure`: why the job does not read that shard, if known.
    """

    records: int
    per_second: float | None
    open_shards: int
    idle_shards: int
    held_shards: int
    skipped: int
    dead_letters: int
    lag_ms: int | None
    unfinished: int | None
    unread_ms: int | None = None
    read_failure: str | None = None
    left: int = 0

    def __str__(self) -> str:
        per_second = "-" if self.per_second is None else f"{self.per_second:,.0f}"
        parts = [f"{counted(self.records, 'record')} read"]
        parts += [] if self.unfinished is None else [f"{self.unfinished:,} not finished"]
        parts += [f"{self.left:,} left for the next start"] if self.left else []
        parts += [f"{per_second}/s", f"{counted(self.open_shards, 'shard')} open"]
        counts = {"idle": self.idle_shards, "held": self.held_shards, "skipped": self.skipped}
        parts += [f"{count} {name}" for name, count in counts.items() if count]
        parts += [counted(self.dead_letters, "dead letter")] if self.dead_letters else []
        parts += [] if self.lag_ms is None else [f"{self.lag_ms / 1000:.1f} s behind"]
        if self.unread_ms is not None:
            failure = "" if self.read_failure is None else f": {self.read_failure}"
            parts.append(f"last read {self.unread_ms / 1000:.0f} s ago{failure}")
        return ", ".join(parts)


class JobProgressMeter:
    """Computes the progress of a job from the last report of each worker.

    - `began`: when the job began (seconds of a monotonic clock).
    """

    def __init__(self, began: float) -> None:
        self._last: dict[int, WorkerProgress] = {}
        self._rates = Rates()
        self._rates.add(began, {"job": (0, 0)})

    @property
    def has_reports(self) -> bool:
        """Whether any worker has reported yet."""
        return bool(self._last)

    def update(self, progress: WorkerProgress) -> None:
        """Keep a worker's newest report."""
        self._last[progress.process] = progress

    def sample(self, now: float) -> JobProgress:
        """Return the job's progress now, with the rate of the last seconds. `now` is in seconds of a monotonic clock."""
        each = list(self._last.values())
        records = sum(one.records for one in each)
        self._rates.add(now, {"job": (sum(_finished(one) for one in each), 0)})
        unread = max(
            (one for one in each if one.unread_ms is not None), key=lambda one: one.unread_ms or 0, default=None
        )
        per_second, _ = self._rates.per_second("job") or (None, None)
        return JobProgress(
            records,
            per_second,
            sum(one.open_shards for one in each),
            sum(one.idle_shards for one in each),
            sum(one.held_shards for one in each),
            sum(one.skipped for one in each),
            sum(one.dead_letters for one in each),
            max((one.lag_ms for one in each if one.lag_ms is not None), default=None),
            sum(told) if (told := [one.unfinished for one in each if one.unfinished is not None]) else None,
            None if unread is None else unread.unread_ms,
            None if unread is None else unread.read_failure,
            sum(one.left for one in each),
        )


def _finished(progress: WorkerProgress) -> int:
    """Return how many records the sink has finished, at least 0. A running write may count as unfinished before it counts as read."""
    return max(0, progress.records - (progress.unfinished or 0) - progress.left)
