"""What a person sees of each written batch: one line in the driver's log."""

from __future__ import annotations

from collections.abc import Sequence

from .write_task import TaskFigures


def line(what: str, tasks: Sequence[TaskFigures]) -> str:
    """What a batch (`what` names it) brought."""
    slowest = max(tasks, key=lambda one: one.seconds, default=None)
    return (
        f"{what}: {_sum(tasks, 'records')} records and {_sum(tasks, 'bytes')} bytes put by {len(tasks)} tasks, "
        f"as {_sum(tasks, 'kinesis_records')} Kinesis records; "
        f"{_sum(tasks, 'retries')} sent again, {_sum(tasks, 'throttles')} throttled, {_given_up(tasks)}, "
        f"{_sum(tasks, 'waits')} waits for room; "
        + ("no task wrote" if slowest is None else f"the slowest task ({slowest.task}) took {slowest.seconds:.1f} s")
    )


def abort_line(what: str, done: Sequence[TaskFigures]) -> str:
    """What remains of a batch that failed."""
    return (
        f"{what} failed: {_sum(done, 'records')} records of {len(done)} finished tasks are in the stream, of the others some may be; "
        "when the batch is run again they come again (at least once)"
    )


def _given_up(tasks: Sequence[TaskFigures]) -> str:
    letters = _sum(tasks, "dead_letters")
    return f"{_sum(tasks, 'given_up')} given up" + (f" ({letters} dead letters)" if letters else "")


def _sum(tasks: Sequence[TaskFigures], name: str) -> int:
    return sum(getattr(one, name) for one in tasks)
