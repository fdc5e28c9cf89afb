"""The few figures of a subtask that a progress line shows. They cost a fraction of the cost of all metrics (A1)."""

import msgspec

from ..sink import Unfinished
from .shard_view import lag_ms, unread_ms
from .subtask_view import SubtaskView


class SubtaskProgress(msgspec.Struct, frozen=True, rename="camel"):
    """One subtask's report.

    - `records`: records that were read, which the sink got or which were left out (`skipped`, `dead_letters`).
    - `lag_ms`: age of the oldest unfinished record (ms), of the shard that is furthest behind. None if it is not known.
    - `unfinished`: number of records that were read and that the sink has not finished. None if it is not known.
    - `unread_ms`: the longest time for which a shard that should be read was not read (ms). None if every shard is read.
    - `read_failure`: the error of that shard's last call. None if the call has not returned.
    - `left`: number of records that the sink has dropped, and that the next start reads again.
    """

    subtask: int
    records: int
    open_shards: int
    idle_shards: int
    held_shards: int
    skipped: int
    dead_letters: int
    lag_ms: int | None
    unfinished: int | None = None
    unread_ms: int | None = None
    read_failure: str | None = None
    left: int = 0


def progress_of(view: SubtaskView, unfinished: Unfinished | None, now_ms: int) -> SubtaskProgress:
    """Return a report, from one pass over the shards."""
    open_shards = idle = held = 0
    most_ms, longest_ms, failure = -1, -1, None
    of_shards = {} if unfinished is None else unfinished.shards
    for entry in view.table:
        if entry.is_open:
            open_shards += 1
            idle += entry.reading.is_idle
        held += entry.status.is_held
        lag = lag_ms(entry, of_shards.get(entry.key), now_ms)
        most_ms = most_ms if lag is None else max(most_ms, lag)
        age_ms = unread_ms(entry, now_ms)
        if age_ms is not None and age_ms > longest_ms:
            longest_ms, failure = age_ms, entry.metrics.last_failure
    return SubtaskProgress(
        0,
        view.records_read,
        open_shards,
        idle,
        held,
        view.skipped_records,
        view.dead_letters,
        _known(most_ms),
        None if unfinished is None else unfinished.records,
        _known(longest_ms),
        None if failure is None else str(failure),
        0 if unfinished is None else unfinished.left,
    )


def _known(value: int) -> int | None:
    return None if value < 0 else value
