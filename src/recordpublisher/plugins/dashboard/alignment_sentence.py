"""`alignment_sentence`: what alignment waits for now and why, from the metrics of a running job (W8, W10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recordpublisher.fetcher.monitoring.metrics_exporter import SubtaskMetrics


def alignment_sentence(subtasks: Sequence[SubtaskMetrics]) -> str:
    """One sentence, of one subtask or more."""
    held = sum(each.values["heldShards"] for each in subtasks)
    shards = sum(each.values["openShards"] for each in subtasks)
    if not held:
        return "Alignment holds no shard back."
    held_back = "is held back: it waits" if held == 1 else "are held back: they wait"
    beginning = f"{held} of {shards} shards {held_back} for"
    lowest = next((each.values["blockingSubtask"] for each in subtasks if each.values["heldShards"]), None)
    waiting = [each for each in subtasks if each.subtask == lowest] or ([*subtasks] if lowest is None else [])
    blocking = _lowest_shard(waiting)
    if blocking is None:
        where = "a shard of another process" if lowest is None else f"subtask {lowest}"
        return f"{beginning} {where}."
    subtask, shard, values = blocking
    return f"{beginning} {shard} of subtask {subtask}, {_reason(values)}."


def _lowest_shard(subtasks: Sequence[SubtaskMetrics]) -> tuple[int, str, Mapping[str, Any]] | None:
    found = [
        (each.subtask, shard, each.shards[shard])
        for each in subtasks
        if (shard := each.values["blockingShard"]) in each.shards
    ]
    return min(found, key=lambda one: _watermark(one[2]), default=None)


def _watermark(shard: Mapping[str, Any]) -> float:
    """That with which the shard counts for the global one: a shard without any holds all others back."""
    watermark = shard["watermark"] if shard["nextWatermark"] is None else shard["nextWatermark"]
    return float("-inf") if watermark is None else watermark


def _reason(shard: Mapping[str, Any]) -> str:
    """Why the shard's watermark does not rise."""
    if shard["stage"] == "ENDED":
        return "which has ended and whose children are not read yet"
    if shard["alarm"]:
        return "which has unread records and wrote none for the alarm interval"
    if shard["queuedRecords"]:
        return "whose records are read and wait to be written"
    behind_ms = shard["millisBehindLatest"]
    if behind_ms < 0:
        return "which has not been read yet"
    if behind_ms > 0:
        return f"which is {behind_ms / 1000:,.1f} s behind its newest record"
    return "which has no new records and is not idle yet"
