"""The progress of a job: the sum of its subtasks' reports."""

from dataclasses import dataclass

from recordpublisher.fetcher.monitoring.progress import SubtaskProgress
from recordpublisher.plugins.lag.rates import Rates


@dataclass(frozen=True, slots=True)
class JobProgress:
    """All subtasks together; `per_second` is the rate of the last seconds."""

    records: int
    per_second: float
    open_shards: int
    idle_shards: int
    held_shards: int
    skipped: int
    dead_letters: int
    behind_ms: int | None

    def __str__(self) -> str:
        parts = [f"{self.records:,} records, {self.per_second:,.0f}/s, {self.open_shards} shards open"]
        counted = {"idle": self.idle_shards, "held": self.held_shards, "skipped": self.skipped}
        parts += [f"{count} {name}" for name, count in {**counted, "dead letters": self.dead_letters}.items() if count]
        parts += [] if self.behind_ms is None else [f"{self.behind_ms / 1000:.1f} s behind"]
        return ", ".join(parts)


class JobProgressMeter:
    """Owns the last report of each subtask."""

    def __init__(self) -> None:
        self._last: dict[int, SubtaskProgress] = {}
        self._rates = Rates()

    @property
    def has_reports(self) -> bool:
        """Whether any subtask has reported yet."""
        return bool(self._last)

    def update(self, progress: SubtaskProgress) -> None:
        """Take a subtask's newest report."""
        self._last[progress.subtask] = progress

    def sample(self, now: float) -> JobProgress:
        """The job's progress now, with the rate of the last seconds; `now` in seconds of a monotonic clock."""
        each = list(self._last.values())
        records = sum(one.records for one in each)
        self._rates.add(now, {"job": (records, 0)})
        per_second, _ = self._rates.per_second("job") or (0.0, 0.0)
        return JobProgress(
            records,
            per_second,
            sum(one.open_shards for one in each),
            sum(one.idle_shards for one in each),
            sum(one.held_shards for one in each),
            sum(one.skipped for one in each),
            sum(one.dead_letters for one in each),
            max((one.behind_ms for one in each if one.behind_ms is not None), default=None),
        )
