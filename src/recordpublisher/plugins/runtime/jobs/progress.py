"""The progress of a job: the sum of its subtasks' reports."""

from dataclasses import dataclass

from recordpublisher.fetcher.monitoring.progress import SubtaskProgress
from recordpublisher.plugins.lag.rates import Rates
from recordpublisher.publishers.log_fields import counted


@dataclass(frozen=True, slots=True)
class JobProgress:
    """All subtasks together; `per_second` is the rate of the last seconds, None where no time has passed. `unfinished`: of the records that
    were read, those that the sink is not done with."""

    records: int
    per_second: float | None
    open_shards: int
    idle_shards: int
    held_shards: int
    skipped: int
    dead_letters: int
    behind_ms: int | None
    unfinished: int | None

    def __str__(self) -> str:
        per_second = "-" if self.per_second is None else f"{self.per_second:,.0f}"
        parts = [f"{counted(self.records, 'record')} read"]
        parts += [] if self.unfinished is None else [f"{self.unfinished:,} not finished"]
        parts += [f"{per_second}/s", f"{counted(self.open_shards, 'shard')} open"]
        counts = {"idle": self.idle_shards, "held": self.held_shards, "skipped": self.skipped}
        parts += [f"{count} {name}" for name, count in counts.items() if count]
        parts += [counted(self.dead_letters, "dead letter")] if self.dead_letters else []
        parts += [] if self.behind_ms is None else [f"{self.behind_ms / 1000:.1f} s behind"]
        return ", ".join(parts)


class JobProgressMeter:
    """Owns the last report of each subtask. `began`: when the job did, in seconds of a monotonic clock."""

    def __init__(self, began: float) -> None:
        self._last: dict[int, SubtaskProgress] = {}
        self._rates = Rates()
        self._rates.add(began, {"job": (0, 0)})

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
        per_second, _ = self._rates.per_second("job") or (None, None)
        return JobProgress(
            records,
            per_second,
            sum(one.open_shards for one in each),
            sum(one.idle_shards for one in each),
            sum(one.held_shards for one in each),
            sum(one.skipped for one in each),
            sum(one.dead_letters for one in each),
            max((one.behind_ms for one in each if one.behind_ms is not None), default=None),
            sum(told) if (told := [one.unfinished for one in each if one.unfinished is not None]) else None,
        )
