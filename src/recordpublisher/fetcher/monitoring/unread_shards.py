"""Which shards are produced to but not consumed: plain decisions over what was seen of each (A2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recordpublisher.publishers.shards import Shard

from ..alarms import Alarm, AlarmKind
from ..shards.lineage import parent_keys
from ..shards.shard_state import ShardState
from ..shards.shard_table import ShardEntry, ShardStage
from .stall_detector import UnchangedTimer


@dataclass(frozen=True, slots=True)
class ShardObservation:
    """One look at one shard. `emitted` is anything that changes when something of it was emitted; `unread` whether its tip lies
    beyond that, None when this look did not find out; `reason` says who should read it, or why nothing comes out."""

    key: str
    emitted: object
    unread: bool | None
    reason: str


class UnreadShardDetector:
    """Owns for how long each shard was seen written to and not emitted."""

    def __init__(self, interval_ms: int, longest_gap: float) -> None:
        self._interval_ms = interval_ms
        self._longest_gap = longest_gap
        self._standings: dict[str, UnchangedTimer] = {}

    def look(self, sights: Iterable[ShardObservation], now: float) -> list[Alarm]:
        """The shards that have been so for the alarm interval; `now` in monotonic seconds. A shard without a sight is forgotten."""
        seen = {sight.key: sight for sight in sights}
        self._standings = {key: self._standings.get(key) or UnchangedTimer(self._longest_gap) for key in seen}
        found = []
        for key, sight in seen.items():
            lasting_ms = round(self._seen(sight, self._standings[key], now) * 1000)
            if lasting_ms >= self._interval_ms:
                found.append(Alarm(AlarmKind.UNREAD, key, lasting_ms, sight.reason))
        return found

    def _seen(self, sight: ShardObservation, standing: UnchangedTimer, now: float) -> float:
        if sight.unread:
            return standing.saw(sight.emitted, now)
        if sight.unread is None:
            return standing.missed(sight.emitted, now)
        standing.over()
        return 0.0


def lineage_progress(shard: Shard, states: Mapping[str, ShardState]) -> object:
    """What moves when something of a shard or of an ancestor is emitted: a child that waits while its parent is read is well (S2)."""
    own = states.get(shard.key)
    mark = None if own is None else (own.position, own.continuation, own.ended)
    parents = parent_keys(shard)
    return mark, tuple(_line_of(key, states) for key in parents)


def _line_of(key: str, states: Mapping[str, ShardState]) -> object:
    state = states.get(key)
    if state is None:
        return None
    stream = key.rsplit("/", 1)[0]
    elders = () if state.ended else tuple(_line_of(f"{stream}/{parent}", states) for parent in state.parents)
    return state.position, state.continuation, state.ended, elders


def sight_of(entry: ShardEntry, mark: object, now_ms: int, fresh_ms: int, waited_for: str) -> ShardObservation:
    """What this subtask sees of a shard of its own, without a call: None where its reads have said nothing for `fresh_ms`.

    `waited_for` names what alignment waits for, in case the shard is held.
    """
    return ShardObservation(entry.key, mark, _is_unread(entry, now_ms, fresh_ms), _reason(entry, waited_for))


def _is_unread(entry: ShardEntry, now_ms: int, fresh_ms: int) -> bool | None:
    if entry.stage is ShardStage.ENDED or (entry.rests and not entry.queue):
        return False
    if entry.queued_records or entry.is_writing:
        return True
    if entry.answered_ms is None or now_ms - entry.answered_ms > fresh_ms:
        return None
    return not entry.at_tip


def _reason(entry: ShardEntry, waited_for: str) -> str:
    if entry.is_writing:
        return "the sink's write does not return"
    if entry.held_since is not None:
        return f"held back by alignment, which waits for {waited_for}"
    if entry.stage is ShardStage.WAITING:
        return f"it waits for the end of its parents {list(entry.shard.parents)}"
    return "the sink does not take it" if entry.queued_records else "its reads bring nothing"
