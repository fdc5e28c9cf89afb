"""Who holds an alignment that stands still, in words (W10)."""

from __future__ import annotations

from ..coordination.tracker import WatermarkTracker


def waited_for(tracker: WatermarkTracker, own_holder: str | None, subtask: int) -> str:
    """Subtasks that have not joined, else another subtask, else the shard that holds this subtask's own minimum."""
    holder, missing = tracker.holder(), tracker.missing()
    if missing:
        return f"subtasks that have not joined: {missing}"
    if holder is not None and holder != subtask:
        return f"subtask {holder}"
    return f"shard {own_holder}"
