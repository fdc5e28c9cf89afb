"""Decides in which state each listed shard starts: with its stored state, or at a position that the user has given.

`initial_states` decides this for a listing. `publishers/initial_position.py` parses `flink.stream.initpos`, and `states_by_shard` parses
positions that are given shard by shard. `AloneWorkerPort` is the port to the worker of a job that runs alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from recordpublisher.publishers.errors import ConfigurationError, DataLossError, StateError
from recordpublisher.publishers.initial_position import time_ms
from recordpublisher.publishers.positions import WHOLE_RECORD, PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.job_properties import JOB_NAME, STATE_URI
from recordpublisher.publishers.properties.reading_properties import INITIAL_POSITION
from recordpublisher.publishers.safe_text import counted, few_of
from recordpublisher.publishers.shards import Shard, is_listing_older_than, stream_name, stream_of

from ..global_watermark_rules import inherited_watermark
from ..shards.discovery import MissingShards
from ..shards.lineage import Children, finished_ancestors, parent_keys, parents_ended, reachable
from ..shards.read_state import latest
from ..shards.retention_check import RetentionCheck, RetentionGap, may_have_gap
from ..shards.shard_state import ShardState
from ..sink import State
from .snapshot_format import RestoredState
from .staged_commits import CommitCounts

log = logging.getLogger("recordpublisher.fetcher")
MAX_LISTINGS, PAUSE_SECONDS = 20, 1.0
"""How often shards are listed again while the listing is older than the restored state, and the pause between two listings (seconds).

After that, the last listing is used even if it is still older.
"""


class Starts(msgspec.Struct, frozen=True):
    """Where shards without a stored position start.

    - `default`: the start of every shard that is not in `by_shard`.
    - `by_shard`: the state in which a shard starts, by shard id. If it is not empty, the job reads one stream.
    """

    default: StartingPosition
    by_shard: Mapping[str, ShardState] = msgspec.field(default_factory=dict)

    def of(self, shard: Shard) -> ShardState:
        """Return the state in which a shard without a stored position starts.

        If `by_shard` has a sequence number that is not after the shard's beginning, the whole shard is read, from TRIM_HORIZON.
        """
        state = self.by_shard.get(shard.shard_id) or ShardState(self.default)
        first = given_position(state)
        if state.ended or first is None or not shard.begins_at(first.sequence):
            return state
        return replace(state, start=StartingPosition.trim_horizon(), position=None)

    @property
    def is_pinned(self) -> bool:
        """Whether no shard starts at LATEST, so that a later start of the job would begin at the same records."""
        starts = (self.default, *(state.start for state in self.by_shard.values()))
        return all(start.type is not PositionType.LATEST for start in starts)

    async def pinned(self, service_time_ms: Callable[[], Awaitable[int]]) -> Starts:
        """Return these starts with LATEST replaced by the service's time. The time is requested only if a shard starts at LATEST."""
        return self if self.is_pinned else self.pinned_at(await service_time_ms())

    def pinned_at(self, now_ms: int) -> Starts:
        """Return these starts with fixed times.

        LATEST becomes `now_ms`, the time of the service's clock (epoch ms). A start at an age, such as an hour ago, counts back from it.
        """
        return self._each(lambda start: start.pinned_at(now_ms))

    def with_stored_start(self, start_ms: int | None) -> Starts:
        """Return these starts with `start_ms` instead of LATEST, and instead of each start at an age, such as an hour ago.

        `start_ms`: the time that the job's first start has used (epoch ms). With it, every start of the job begins at the same records. If
        it is None, the starts are unchanged.
        """
        return self if start_ms is None else self._each(lambda start: start.with_stored_start(start_ms))

    def _each(self, changed: Callable[[StartingPosition], StartingPosition]) -> Starts:
        named = {shard: replace(each, start=changed(each.start)) for shard, each in self.by_shard.items()}
        return Starts(changed(self.default), named)


async def list_restored(
    list_all: Callable[[], Awaitable[Sequence[Shard]]],
    streams: Collection[str],
    restored: RestoredState,
    missing: MissingShards,
    is_ours: Callable[[Shard], bool] = lambda shard: True,
) -> Sequence[Shard]:
    """Return every shard of `streams`. Repeat the listing while it lacks a restored shard whose records may still exist.

    Without that shard, its records would be reported as lost, or a later listing would show it as a new shard.

    - `missing`: finds out for each shard that the listing lacks whether it is past retention.
    - `is_ours`: returns whether this process reads a shard. The listing may lack parents of shards that other processes read.

    Raises: StateError if a stream was deleted and created again, and its new shards have the ids of shards that were read.
    """
    for _ in range(MAX_LISTINGS):
        listed = await list_all()
        refuse_later_shards(shards_after_their_end(listed, restored))
        open_shards = shards_open_after_their_end(listed, restored)
        young = set(shards_newer_than_listing(listed, restored, streams))
        unlisted = expected_but_unlisted(listed, filter(is_ours, listed), restored, streams)
        await missing.check(unlisted - young, streams)
        inconsistent = young.union(open_shards, (key for key in unlisted if not missing.is_expired(key)))
        if not inconsistent:
            break
        log.warning(
            "the service's listing of shards is incomplete, so the shards are listed again. It lacks, or shows as open, %s: %s",
            counted(len(inconsistent), "shard"),
            few_of(sorted(inconsistent)),
        )
        await asyncio.sleep(PAUSE_SECONDS)
    refuse_later_shards(open_shards)
    return listed


def shards_after_their_end(listed: Iterable[Shard], restored: RestoredState) -> list[str]:
    """Return the listed shards that belong to a stream that was created again.

    Such a shard begins after the position at which the restored shard with the same id ended.
    """
    return [shard.key for shard, end in _ended(listed, restored) if end is not None and shard.begins_at(end.sequence)]


def shards_open_after_their_end(listed: Iterable[Shard], restored: RestoredState) -> list[str]:
    """Return shards that are listed as open, although they were read to their end.

    Either the listing is old, or the stream was created again. Only Kinesis is known to list the end of each shard that was closed.
    """
    ended = [shard for shard, _ in _ended(listed, restored)]
    return [shard.key for shard in ended if not shard.closed and shard.starting_sequence_number is not None]


def _ended(listed: Iterable[Shard], restored: RestoredState) -> list[tuple[Shard, SequenceNumber | None]]:
    states = [(shard, restored.shards.get(shard.key)) for shard in listed]
    return [(shard, state.position) for shard, state in states if state is not None and state.ended]


def refuse_later_shards(shards: Sequence[str]) -> None:
    """Raise StateError if `shards` is not empty: these are shards of a stream that was created again.

    The state has the ends of older shards with the same ids, so the new shards would count as read.
    """
    if shards:
        raise StateError(
            f"a stream was deleted and created again since its positions were stored: the new shards {few_of(shards)} have the ids of "
            f"shards that were read to their end. Start without the old state, at {INITIAL_POSITION.key}: with another {JOB_NAME.key} or "
            f"{STATE_URI.key} (Spark: a new checkpointLocation and metadataLocation), or let these shards begin again with "
            "`recordpublisher positions reset`"
        )


# initial_states decides in which state each listed shard starts. Other functions here find out whether records were lost since the last run
# (P3, S5).


def initial_states(listed: Iterable[Shard], restored: RestoredState, starts: Starts) -> dict[str, ShardState]:
    """Return the state from which each listed shard starts, whichever worker reads it.

    - A shard with restored state continues there.
    - An ancestor of a shard that was read counts as read to its end: its state was dropped after its end.
    - An ancestor of a shard that waits for its parents does not count as read, because the shard may be waiting for this ancestor.
    - Any other shard of a stream with restored state is new and starts at TRIM_HORIZON.
    - A shard of a stream without restored state starts as `starts` says. If `starts.by_shard` names a shard, its ancestors count as read,
      and its descendants start at TRIM_HORIZON.
    """
    shards, read_streams = {shard.key: shard for shard in listed}, restored.streams
    new_streams = [shard for shard in shards.values() if shard.stream not in read_streams]
    named = {shard.key: starts.of(shard) for shard in new_streams if shard.shard_id in starts.by_shard}
    begun = {**named, **restored.shards}
    finished = _finished_ancestors(shards, begun)
    children = Children(new_streams if named else ())
    following = reachable(named, lambda key: [child.key for child in children.of(key)])

    def new_state(shard: Shard) -> ShardState:
        if shard.key in finished:
            return ShardState(starts.default, ended=True)
        if shard.stream in read_streams or shard.key in following:
            return ShardState(StartingPosition.trim_horizon())
        return starts.of(shard)

    states = {key: begun.get(key) or new_state(shard) for key, shard in shards.items()}
    return {
        key: _with_seen(_with_inherited(state, shards[key], states), shards[key], restored)
        for key, state in states.items()
    }


def shards_no_longer_listed(listed: Iterable[Shard], restored: RestoredState, streams: Iterable[str]) -> list[str]:
    """Return restored shards that were not read to their end and that the listing lacks: their records are past retention."""
    known, wanted = {shard.key for shard in listed}, set(streams)
    unfinished = [key for key, state in restored.shards.items() if not state.ended and key not in known]
    return [key for key in unfinished if stream_of(key) in wanted]


def unlisted_states(listed: Iterable[Shard], restored: RestoredState) -> dict[str, ShardState]:
    """Return the state of known shards that the listing lacks, because a later listing may show them.

    A restored shard keeps its restored state. An ancestor of a restored shard counts as ended, because a child is read only after its
    parents.
    """
    shards = {shard.key: shard for shard in listed}
    finished = ShardState(StartingPosition.trim_horizon(), ended=True)
    known = dict.fromkeys(_finished_ancestors(shards, restored.shards), finished) | dict(restored.shards)
    return {key: state for key, state in known.items() if key not in shards}


def expected_but_unlisted(
    listed: Iterable[Shard], ours: Iterable[Shard], restored: RestoredState, streams: Iterable[str]
) -> set[str]:
    """Return the shards that the listing should have and lacks: restored shards, and parents for which shards in `ours` would wait.

    Each of these shards is past retention, or the listing is incomplete.
    """
    shards, wanted = {shard.key: shard for shard in listed}, set(streams)
    of_streams = {key for key in restored.shards if stream_of(key) in wanted}
    unread = [shard for shard in ours if shard.key not in restored.shards or restored.shards[shard.key].waiting]
    parents = {key for shard in unread for key in parent_keys(shard)} - _finished_ancestors(shards, restored.shards)
    return (of_streams | parents) - shards.keys()


def shards_newer_than_listing(listed: Iterable[Shard], restored: RestoredState, streams: Iterable[str]) -> list[str]:
    """Return restored shards that are younger than every listed shard of their stream.

    They show that the listing is older than the restored state. Kinesis numbers shards by creation, and retention removes the oldest first,
    so a complete listing always has the youngest shards.
    """
    listed, wanted = list(listed), set(streams)
    known = {shard.key for shard in listed}
    places = [key.rpartition("/") for key in restored.shards if key not in known]
    unknown = [Shard(stream, shard_id) for stream, _, shard_id in places]
    return [shard.key for shard in unknown if shard.stream in wanted and is_listing_older_than(shard, listed)]


def last_seen_ms(state: ShardState) -> int:
    """Return the latest time at which no record of the shard can have been lost (epoch ms), or 0 if it is not known.

    It is the latest of three times: the arrival of the shard's last record, its last read at the tip, and, for a shard that was never read,
    the time until which its parents were open.
    """
    return latest(state.arrival_ms, state.tip_ms, state.seen_ms) or 0


def shards_read_long_ago(restored: RestoredState, now_ms: int) -> set[str]:
    """Return restored shards that were last read almost a day ago, including ended ones.

    Only these can have lost records, because every stream keeps records for a day at least.
    """
    return {key for key, state in restored.shards.items() if may_have_gap(last_seen_ms(state) or None, now_ms)}


async def shards_past_retention(
    shards: Iterable[Shard], restored: RestoredState, retention: RetentionCheck
) -> list[str]:
    """Return the keys of restored shards whose unread records are past retention and lost. Shards that have ended are left out."""
    states = [(shard, restored.shards[shard.key]) for shard in shards]
    unfinished = [(shard, state) for shard, state in states if not state.ended]
    gaps = await asyncio.gather(
        *(retention.gap_after(shard, state.position, last_seen_ms(state)) for shard, state in unfinished)
    )
    return [shard.key for (shard, _), gap in zip(unfinished, gaps, strict=True) if gap is RetentionGap.LOST]


def data_loss_error(keys: list[str], restored: RestoredState) -> DataLossError:
    """Return the error for shards that have lost records. It names the first of them with their positions."""
    places = few_of(sorted(f"{key} after {restored.shards[key].position or 'its start'}" for key in keys))
    return DataLossError(f"records are past retention and lost: {places}")


def _finished_ancestors(shards: Mapping[str, Shard], begun: Mapping[str, ShardState]) -> set[str]:
    started = [shards[key] for key, state in begun.items() if not state.waiting and key in shards]
    return finished_ancestors(started, shards) - begun.keys()


def _with_inherited(state: ShardState, child: Shard, states: Mapping[str, ShardState]) -> ShardState:
    """Return the state of a child. If all its parents have ended and it has no watermark, it gets their lowest one."""
    parents = [states[key] for key in parent_keys(child) if key in states]
    watermark = inherited_watermark(parent.watermark for parent in parents)
    if state.watermark is not None or state.ended or watermark is None or not is_startable(child, states):
        return state
    return replace(state, watermark=watermark)


def _with_seen(state: ShardState, child: Shard, restored: RestoredState) -> ShardState:
    """Return the state of an unread child, with the time until which its parents were last known to be open.

    Every record of the child is younger than that time.
    """
    if state.ended or state.position is not None or state.seen_ms is not None:
        return state
    parents = (restored.shards[key] for key in parent_keys(child) if key in restored.shards)
    seen_ms = latest(*(parent.seen_ms for parent in parents if parent.ended))
    return state if seen_ms is None else replace(state, seen_ms=seen_ms)


def is_startable(shard: Shard, states: Mapping[str, ShardState]) -> bool:
    """Return whether every parent of a shard was read to its end, according to the states of a restored job."""
    return parents_ended(parent_keys(shard), lambda parent: parent not in states or states[parent].ended)


def shards_with_unread_children(
    listed: Sequence[Shard], restored: RestoredState, oldest_retained_ms: Mapping[str, int | None]
) -> list[str]:
    """Return restored shards that were read to their end, and whose unread children may be past retention.

    For such a shard all of this is true:

    - The shard is no longer listed, and its children are unknown.
    - The whole state of its stream is older than the stream's oldest record. In a younger state the children may be missing because they
      were read to their end and dropped.
    """
    known = {shard.key for shard in listed}
    known |= {key for shard in listed for key in parent_keys(shard)}
    known |= {f"{stream_of(key)}/{parent}" for key, state in restored.shards.items() for parent in state.parents}
    last_seen: dict[str, int] = {}
    for key, state in restored.shards.items():
        last_seen[stream_of(key)] = max(last_seen.get(stream_of(key), 0), last_seen_ms(state))
    old = {stream for stream, seen in last_seen.items() if 0 < seen < (oldest_retained_ms.get(stream) or 0)}
    return [key for key, state in restored.shards.items() if state.ended and key not in known and stream_of(key) in old]


def valid_by_shard(words: str) -> str:
    """Return the part of an error message that shows the JSON in which positions are given shard by shard.

    `words`: the words that are valid instead of a sequence number, each with a comma before it, such as `, "TRIM_HORIZON"`.
    """
    return f'JSON by shard: {{"<shard id>": "<sequence number>"{words}}}'


VALID_BY_SHARD = valid_by_shard(', "TRIM_HORIZON" or, in a query, "LATEST"')
_SHARD_END = "SHARD_END"


def given_position(state: ShardState) -> SequenceNumber | None:
    """Return the sequence number at or after which a shard starts, or None if its start is not given by a sequence number."""
    if state.position is None and state.start.type is PositionType.AT_SEQUENCE_NUMBER:
        return SequenceNumber(state.start.sequence_number or "")
    return state.position


def states_by_shard(option: str, given: str, streams: Sequence[str]) -> dict[str, ShardState]:
    """Parse positions that are given shard by shard as JSON. Return the state in which each shard starts, by shard id.

    The positions may be in this library's format, or in the format in which the Spark connectors of qubole and awslabs store them. Errors
    name `option`.

    Raises: ConfigurationError if `given` is not valid, if the positions are those of another stream, or if several streams are given.
    """
    entries = json_by_shard(option, given, VALID_BY_SHARD, streams)
    _check_stream(option, entries.pop("metadata", None), streams[0])
    if not entries:
        raise ConfigurationError(option, given, VALID_BY_SHARD)
    return {shard: _state_of(option, entry) for shard, entry in entries.items()}


def json_by_shard(option: str, given: str, valid: str, streams: Sequence[str]) -> dict[str, Any]:
    """Parse `given`, a JSON object that has a position for each shard id: the start or the end of a read. Return its entries.

    `option` and `valid`: the name of the option and its valid values, for errors.

    Raises: ConfigurationError if the text is not a JSON object with entries, or if there are several streams.
    """
    try:
        entries = json.loads(given)
    except ValueError as error:
        raise ConfigurationError(option, given, valid, reason=str(error)) from None
    if not isinstance(entries, dict) or not entries:
        raise ConfigurationError(option, given, valid)
    if len(streams) > 1:
        reason = f"the positions in {option} are given by shard, and do not name a stream"
        raise ConfigurationError("streams", ",".join(streams), "one stream", reason=reason)
    return entries


def position_of(option: str, entry: object, valid: str, *words: str) -> str:
    """Return `entry`, the position that is given for one shard (the start or the end of a read), in upper case.

    `option` and `valid`: the name of the option and its valid values, for errors.

    Raises: ConfigurationError if `entry` is neither a sequence number nor one of `words`.
    """
    text = entry.upper() if isinstance(entry, str) else ""
    if text not in words and not re.fullmatch("[0-9]{1,129}", text):
        raise ConfigurationError(option, str(entry), valid)
    return text


def _check_stream(option: str, metadata: object, stream: str) -> None:
    stored = metadata.get("streamName") if isinstance(metadata, dict) else None
    if stored is not None and stored != stream_name(stream):
        reason = f"these positions belong to the stream {stored!r}"
        raise ConfigurationError(option, str(stored), repr(stream_name(stream)), reason=reason)


def _state_of(option: str, entry: object) -> ShardState:
    """Return the state in which one shard starts. Errors name `option`.

    `entry`: TRIM_HORIZON, LATEST, a sequence number, or an object that another connector has stored.
    """
    if isinstance(entry, dict):
        return _stored_state(option, entry)
    position = position_of(option, entry, VALID_BY_SHARD, PositionType.TRIM_HORIZON, PositionType.LATEST)
    if position.isdecimal():
        return ShardState(StartingPosition(PositionType.AT_SEQUENCE_NUMBER, position))
    return ShardState(StartingPosition(PositionType(position)))


def _stored_state(option: str, entry: Mapping[str, Any]) -> ShardState:
    """Return the state from an object that a Spark connector of qubole or awslabs has stored (an iterator type and its position)."""
    kind, at = str(entry.get("iteratorType", "")).upper(), str(entry.get("iteratorPosition", ""))
    # The last time at which nothing can have been lost, which `rp.spark.read_positions` adds.
    given_ms = entry.get("seenMs")
    seen_ms = given_ms if isinstance(given_ms, int) else None
    if kind == _SHARD_END:
        return ShardState(StartingPosition.trim_horizon(), ended=True, seen_ms=seen_ms)
    if kind not in list(PositionType):
        valid = f"an iteratorType of {', '.join(PositionType)}, {_SHARD_END}"
        raise ConfigurationError(option, json.dumps(entry), valid)
    if kind in (PositionType.TRIM_HORIZON, PositionType.LATEST):
        return ShardState(StartingPosition(PositionType(kind)), seen_ms=seen_ms)
    number = position_of(option, at, f"an iteratorPosition of digits for {kind}")
    if kind == PositionType.AT_TIMESTAMP:
        time = time_ms(option, number, "an iteratorPosition in epoch ms")
        return ShardState(StartingPosition.at_timestamp(time), seen_ms=seen_ms)
    if kind == PositionType.AT_SEQUENCE_NUMBER:
        return ShardState(StartingPosition(PositionType.AT_SEQUENCE_NUMBER, number), seen_ms=seen_ms)
    sub_sequence = str(entry.get("subSequenceNumber", WHOLE_RECORD))
    is_inside = sub_sequence.isdecimal() and str(entry.get("isLast", "true")).lower() == "false"
    after = SequenceNumber(number, int(sub_sequence) if is_inside else WHOLE_RECORD)
    return ShardState(StartingPosition.trim_horizon(), position=after, seen_ms=seen_ms)


# AloneWorkerPort is the port through which the fetcher uses the worker of a job that runs alone (`fetcher/elastic/alone_worker.py`).


class AloneWorkerPort(Protocol):
    """Takes over every shard for a process that runs alone, and stores the positions.

    For most sinks `store` stores them. A `CommittingSink` needs three steps:

    1. `settle`: find out whether the last commit was stored, if it got no answer.
    2. `commit`: store the written rows and their positions in one step.
    3. `publish`: make the committed rows visible.
    """

    @property
    def counts(self) -> CommitCounts | None:
        """Counts and times of the commits of a `CommittingSink`; None for other sinks."""

    async def open(self) -> tuple[int, list[State]]:
        """Acquire every shard. Return the epoch, which is higher at each start, and the stored snapshots."""

    async def store(self, state: State) -> None:
        """Store a snapshot of all positions."""

    async def settle(self) -> None:
        """Find out the outcome of a commit that got no answer, by repeating it."""

    async def commit(self, state: dict[str, Any], records: int = 0) -> None:
        """Let the sink stage the written records, and commit them together with the snapshot `state`.

        `records`: number of records written so far.
        """

    async def publish(self) -> None:
        """Make the committed rows visible."""

    async def close(self) -> None:
        """Close the stores of positions."""
