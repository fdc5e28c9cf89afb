"""SubtaskProgress: the few figures of a subtask that a progress line shows. They cost a fraction of what all metrics cost (A1)."""

import msgspec

from ..sink import Unfinished
from .shard_view import millis_behind_latest
from .subtask_view import SubtaskView


class SubtaskProgress(msgspec.Struct, frozen=True, rename="camel"):
    """One subtask's report; `behind_ms` is that of the shard furthest behind its tip, `unfinished` what the sink has of the records that
    were read and is not done with (None: not known)."""

    subtask: int
    records: int
    open_shards: int
    idle_shards: int
    held_shards: int
    skipped: int
    dead_letters: int
    behind_ms: int | None
    unfinished: int | None = None


def progress_of(subtask: int, view: SubtaskView, unfinished: Unfinished | None, now_ms: int) -> SubtaskProgress:
    """A report, from one pass over the shards."""
    open_shards = idle = held = 0
    behind_ms = -1
    for entry in view.table:
        if entry.is_open:
            open_shards += 1
            idle += entry.reading.is_idle
        held += entry.status.is_held
        behind_ms = max(behind_ms, millis_behind_latest(entry, now_ms))
    known_ms = behind_ms if behind_ms >= 0 else None
    left = None if unfinished is None else unfinished.records
    left_out = view.skipped_records, view.dead_letters
    return SubtaskProgress(subtask, view.emitter.records, open_shards, idle, held, *left_out, known_ms, left)
