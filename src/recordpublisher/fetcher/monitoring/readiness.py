"""Decides whether a worker is ready. A worker is ready if it reads, its checkpoints are stored, and its sink does not hang."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from recordpublisher.publishers.retry import OUTAGES

from ..alarms import Alarm, AlarmKind
from ..checkpoints.checkpoint_schedule import CheckpointAge
from ..pipeline.bounded_runs import RunCompletion
from ..shards.read_state import latest
from ..shards.shard_entry import ShardEntry

READ_LIMIT_MS = 60_000
"""If no read succeeds for this time (ms), the service counts as unreachable. A read that returns no records succeeds too."""


FAILED_READ_LIMIT_MS = 10_000
"""The limit that applies instead of `READ_LIMIT_MS` if the last call has failed (ms). A single failed call is retried within this time."""


CHECKPOINT_LIMIT_MS = 60_000
"""If a checkpoint takes longer than this (ms), the store or the sink counts as unreachable."""


def reasons_not_ready(
    completion: RunCompletion,
    entries: Iterable[ShardEntry],
    checkpoints: CheckpointAge,
    alarms: Iterable[Alarm],
    now_ms: int,
    undecided: str | None = None,
    idle_ms: int | None = None,
) -> list[str]:
    """Return why the worker is not ready, as sentences for people, or an empty list if it is ready.

    No service is called. Being replaced and a refused checkpoint are not among the reasons, because they end the run with an error.

    - `undecided`: the name and place of positions whose write got no answer, so that they may be stored or not. None if every write was
      answered.
    - `idle_ms`: when this worker last was ready and had no shard to read (epoch ms), or None.
    """
    if completion.error is not None:
        return [f"the run ended with {type(completion.error).__name__}: {completion.error}"]
    if not completion.is_running:
        # A start waits for the state store and for listings. These calls have no alarm yet, so the reason is taken from the outage log.
        state = "it is draining or has ended" if completion.has_ended else "it has not started yet"
        return [f"this worker does not read: {'; '.join([state, *OUTAGES.sentences()])}"]
    reasons = []
    reasons += _why_nothing_is_read(list(entries), now_ms, idle_ms)
    if checkpoints.running_ms > CHECKPOINT_LIMIT_MS:
        why = (
            "the store or the sink does not answer"
            if undecided is None
            else f"a write got no answer, so it is not known whether {undecided} is stored"
        )
        reasons.append(f"no checkpoint could be stored for {checkpoints.running_ms // 1000} s: {why}")
    return reasons + [str(alarm) for alarm in alarms if alarm.kind is AlarmKind.HANGING]


def shards_to_read(entries: Iterable[ShardEntry]) -> list[ShardEntry]:
    """Return the shards that are being read and have no queued records.

    Shards with queued records are left out, because they wait for the sink or for alignment, and not for a read.
    """
    return [entry for entry in entries if entry.is_reading and not entry.reading.queue]


def _why_nothing_is_read(entries: Sequence[ShardEntry], now_ms: int, idle_ms: int | None) -> list[str]:
    """Return one reason if the worker is not ready because no shard was read lately, else an empty list.

    `idle_ms`: when this worker last was ready and had no shard to read (epoch ms), or None.
    """
    # A shard that is new to a worker that has read before, such as a child, does not make the worker not ready.
    before_ms = latest(idle_ms, *(entry.reading.last_read_ms for entry in entries))
    ages = [
        (_since_ms(entry.reading.last_read_ms or before_ms, now_ms), entry.metrics.last_failure)
        for entry in shards_to_read(entries)
    ]
    if not ages or any(age <= (READ_LIMIT_MS if failure is None else FAILED_READ_LIMIT_MS) for age, failure in ages):
        return []
    age, failure = min(ages, key=lambda each: each[0])
    since = "yet" if age == inf else f"for {age / 1000:.0f} s"
    return [f"no shard was read {since}" + ("" if failure is None else f": {failure}")]


def _since_ms(last_ms: int | None, now_ms: int) -> float:
    return inf if last_ms is None else now_ms - last_ms
