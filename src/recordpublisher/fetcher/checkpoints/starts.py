"""Decides in which state each listed shard starts: restored, new, or by a start for each shard.

`initial_states` applies this to a listing. `publishers/start_from_properties.py` parses `flink.stream.initpos`, and
`states_by_shard` a start for each shard. `AloneJob` is the port to the worker of a job that runs alone.
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

from recordpublisher.publishers.errors import ConfigurationError, DataLossError
from recordpublisher.publishers.positions import WHOLE_RECORD, PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import Shard, is_listing_older_than, stream_name, stream_of
from recordpublisher.publishers.start_from_properties import time_ms

from ..shards.discovery import MissingShards
from ..shards.lineage import Children, finished_ancestors, parent_keys, parents_ended, reachable
from ..shards.retention_check import RetentionCheck, RetentionGap, may_have_gap
from ..shards.shard_reading import latest
from ..shards.shard_state import ShardState
from ..sink import State
from ..watermark_rules import inherited_watermark
from .commits import CommitCounts
from .snapshot import RestoredState

log = logging.getLogger("recordpublisher.fetcher")
MAX_LISTINGS, PAUSE_SECONDS = 20, 1.0
"""How often shards are listed again while a listing is older than the restored state, and the pause between two listings (s).

The last of these listings is used in any case.
"""


class Starts(msgspec.Struct, frozen=True):
    """Where shards without a stored position start.

    - `default`: the start of every shard that is not in `by_shard`.
    - `by_shard`: the state in which a named shard starts, by shard id. The job then reads one stream.
    """

    default: StartingPosition
    by_shard: Mapping[str, ShardState] = msgspec.field(default_factory=dict)

    def of(self, shard: Shard) -> ShardState:
        """Return the state in which a shard starts.

        If the given sequence number is at or before the shard's listed beginning, it starts at TRIM_HORIZON.
        """
        state = self.by_shard.get(shard.shard_id) or ShardState(self.default)
        first = given_position(state)
        if state.ended or first is None or not shard.begins_at(first.sequence):
            return state
        return replace(state, start=StartingPosition.trim_horizon(), position=None)

    @property
    def is_pinned(self) -> bool:
        """Whether no shard starts at LATEST."""
        starts = (self.default, *(state.start for state in self.by_shard.values()))
        return all(start.type is not PositionType.LATEST for start in starts)

    async def pinned(self, service_time_ms: Callable[[], Awaitable[int]]) -> Starts:
        """Return these starts with LATEST replaced by the service's time, which is requested only if it is needed. See `pinned_at`."""
        return self if self.is_pinned else self.pinned_at(await service_time_ms())

    def pinned_at(self, now_ms: int) -> Starts:
        """Return these starts with LATEST and ages replaced by times. `now_ms` is the time of the service's clock (epoch ms)."""
        return self._each(lambda start: start.pinned_at(now_ms))

    def begun_at(self, start_ms: int | None) -> Starts:
        """Return these starts with LATEST or an age replaced by `start_ms`, the time to which the job pinned it (epoch ms).

        A start that is repeated, even by another process, is then the same (P3). With None the starts are unchanged.
        """
        return self if start_ms is None else self._each(lambda start: start.begun_at(start_ms))

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
    """Return every shard of `streams`, and list again if a shard is missing that has not expired.

    Otherwise the missing shard would seem to be lost, or to be new later. Afterwards `missing` knows which of the restored shards that the
    listing lacks have expired.
    """
    for _ in range(MAX_LISTINGS):
        listed = await list_all()
        young = set(shards_missing_from_listing(listed, restored, streams))
        unlisted = missing_shards(listed, filter(is_ours, listed), restored, streams)
        await missing.check(unlisted - young, streams)
        inconsistent = young | {key for key in unlisted if not missing.is_expired(key)}
        if not inconsistent:
            break
        log.warning("the listing lacks these shards, listing again: %s", ", ".join(sorted(inconsistent)))
        await asyncio.sleep(PAUSE_SECONDS)
    return listed


# Decides in which state each listed shard starts, restored or new, and whether records were lost in the meantime (P3,
# S5).


def initial_states(listed: Iterable[Shard], restored: RestoredState, starts: Starts) -> dict[str, ShardState]:
    """Return the state from which each listed shard starts, for all workers.

    - A shard with restored state resumes there.
    - An ancestor of a started shard counts as finished, because its state was dropped after its end. An ancestor of a shard that has not
      started does not count as finished, because that shard may be waiting for it.
    - Any other shard of a stream with restored state is new and starts at TRIM_HORIZON.
    - A shard of a stream without restored state starts as `starts` says. A shard that is named there counts as started for its ancestors,
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
    """Return restored shards that were not read to their end and are no longer listed: their records are past retention (S5)."""
    known, wanted = {shard.key for shard in listed}, set(streams)
    unfinished = [key for key, state in restored.shards.items() if not state.ended and key not in known]
    return [key for key in unfinished if stream_of(key) in wanted]


def unlisted_states(listed: Iterable[Shard], restored: RestoredState) -> dict[str, ShardState]:
    """Return what is known of shards that the listing lacks, in case a later listing has them.

    It is their restored state, or the state of a finished shard.
    """
    shards = {shard.key: shard for shard in listed}
    finished = ShardState(StartingPosition.trim_horizon(), ended=True)
    known = dict.fromkeys(_finished_ancestors(shards, restored.shards), finished) | dict(restored.shards)
    return {key: state for key, state in known.items() if key not in shards}


def missing_shards(
    listed: Iterable[Shard], ours: Iterable[Shard], restored: RestoredState, streams: Iterable[str]
) -> set[str]:
    """Return the shards that the listing lacks: restored ones, and parents for which shards of this worker would wait (S2, S5).

    These shards are past retention, or the listing is inconsistent.
    """
    shards, wanted = {shard.key: shard for shard in listed}, set(streams)
    of_streams = {key for key in restored.shards if stream_of(key) in wanted}
    unread = [shard for shard in ours if shard.key not in restored.shards or restored.shards[shard.key].waiting]
    parents = {key for shard in unread for key in parent_keys(shard)} - _finished_ancestors(shards, restored.shards)
    return (of_streams | parents) - shards.keys()


def shards_missing_from_listing(listed: Iterable[Shard], restored: RestoredState, streams: Iterable[str]) -> list[str]:
    """Return restored shards that are younger than every listed shard of their stream: the listing is older than the state.

    Kinesis numbers shards by creation, and retention removes the oldest first, so a complete listing never lacks the youngest shards.
    """
    listed, wanted = list(listed), set(streams)
    known = {shard.key for shard in listed}
    places = [key.rpartition("/") for key in restored.shards if key not in known]
    unknown = [Shard(stream, shard_id) for stream, _, shard_id in places]
    return [shard.key for shard in unknown if shard.stream in wanted and is_listing_older_than(shard, listed)]


def last_seen_ms(state: ShardState) -> int:
    """Return the time (epoch ms) until which nothing of the shard was lost, or 0 if nothing is known.

    It is the latest of the arrival of its last record, its last read at the tip, and what is known of the beginning of a shard that was
    never read.
    """
    return latest(state.arrival_ms, state.tip_ms, state.seen_ms) or 0


def shards_read_long_ago(restored: RestoredState, now_ms: int) -> set[str]:
    """Return restored shards, including ended ones, that were last read almost a day ago. The others have lost nothing (S5)."""
    return {key for key, state in restored.shards.items() if may_have_gap(last_seen_ms(state) or None, now_ms)}


async def shards_past_retention(
    shards: Iterable[Shard], restored: RestoredState, retention: RetentionCheck
) -> list[str]:
    """Return the keys of those restored shards that are not at their end and whose unread records are lost (S5)."""
    states = [(shard, restored.shards[shard.key]) for shard in shards]
    unfinished = [(shard, state) for shard, state in states if not state.ended]
    gaps = await asyncio.gather(
        *(retention.gap_after(shard, state.position, last_seen_ms(state)) for shard, state in unfinished)
    )
    return [shard.key for (shard, _), gap in zip(unfinished, gaps, strict=True) if gap is RetentionGap.LOST]


def data_loss_error(keys: list[str], restored: RestoredState) -> DataLossError:
    """Return the error that names the shards with lost records."""
    places = ", ".join(f"{key} after {restored.shards[key].position or 'its start'}" for key in sorted(keys))
    return DataLossError(
        f"records are past retention and lost: {places}. Set flink.state.dataloss=CONTINUE to continue without them"
    )


def _finished_ancestors(shards: Mapping[str, Shard], begun: Mapping[str, ShardState]) -> set[str]:
    started = [shards[key] for key, state in begun.items() if not state.waiting and key in shards]
    return finished_ancestors(started, shards) - begun.keys()


def _with_inherited(state: ShardState, child: Shard, states: Mapping[str, ShardState]) -> ShardState:
    """Give a child that may start now the lowest watermark of its parents, even if they ended in an earlier run of the job (W5)."""
    parents = [states[key] for key in parent_keys(child) if key in states]
    watermark = inherited_watermark(parent.watermark for parent in parents)
    if state.watermark is not None or state.ended or watermark is None or not is_startable(child, states):
        return state
    return replace(state, watermark=watermark)


def _with_seen(state: ShardState, child: Shard, restored: RestoredState) -> ShardState:
    """Remember that a child that was never read began after its parents were last known to be open (S5).

    The parents may no longer be listed.
    """
    if state.ended or state.position is not None or state.seen_ms is not None:
        return state
    parents = (restored.shards[key] for key in parent_keys(child) if key in restored.shards)
    seen_ms = latest(*(parent.seen_ms for parent in parents if parent.ended))
    return state if seen_ms is None else replace(state, seen_ms=seen_ms)


def is_startable(shard: Shard, states: Mapping[str, ShardState]) -> bool:
    """Return whether every parent was read to its end, according to the states of a restored job (S2)."""
    return parents_ended(parent_keys(shard), lambda parent: parent not in states or states[parent].ended)


def shards_with_unread_children(
    listed: Sequence[Shard], restored: RestoredState, oldest_retained_ms: Mapping[str, int | None]
) -> list[str]:
    """Return restored shards that were read to their end and whose children are unknown: the children may have come and gone unread.

    This is so if the shard is no longer listed, and the whole state of its stream is older than the stream's oldest record. In a younger
    state the children may have been dropped before their parent.
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
    """Return the valid values, in words, for positions given by shard.

    `words`: a text that lists the words which may be given instead of a number.
    """
    return f'JSON by shard: {{"<shard id>": "<sequence number>"{words}}}'


VALID_BY_SHARD = valid_by_shard(', "TRIM_HORIZON" or, in a query, "LATEST"')
_SHARD_END = "SHARD_END"


def given_position(state: ShardState) -> SequenceNumber | None:
    """Return the sequence number at or after which a shard starts, or None if it does not start at one."""
    if state.position is None and state.start.type is PositionType.AT_SEQUENCE_NUMBER:
        return SequenceNumber(state.start.sequence_number or "")
    return state.position


def states_by_shard(option: str, given: str, streams: Sequence[str]) -> dict[str, ShardState]:
    """Return where each named shard starts, by shard id, from JSON.

    The positions may be in our format, or in the format in which the connectors of qubole and awslabs store them. `option` is the option
    that errors name.

    Raises: ConfigurationError if the text is not valid, or if positions of another stream or several streams are given.
    """
    entries = json_by_shard(option, given, VALID_BY_SHARD, streams)
    _check_stream(option, entries.pop("metadata", None), streams[0])
    if not entries:
        raise ConfigurationError(option, given, VALID_BY_SHARD)
    return {shard: _state_of(option, entry) for shard, entry in entries.items()}


def json_by_shard(option: str, given: str, valid: str, streams: Sequence[str]) -> dict[str, Any]:
    """Return the entries of positions by shard, for the start or the end of a read.

    Raises: ConfigurationError if the text is not a JSON object with entries, or if there are several streams.
    """
    try:
        entries = json.loads(given)
    except ValueError as error:
        raise ConfigurationError(option, given, valid, reason=str(error)) from None
    if not isinstance(entries, dict) or not entries:
        raise ConfigurationError(option, given, valid)
    if len(streams) > 1:
        raise ConfigurationError("streams", ",".join(streams), "one stream, where positions are given by shard")
    return entries


def position_of(option: str, entry: object, valid: str, *words: str) -> str:
    """Return the position in a shard's entry, for the start or the end of a read: a sequence number, or one of `words`.

    Raises: ConfigurationError if the entry is neither.
    """
    text = entry.upper() if isinstance(entry, str) else ""
    if text not in words and not re.fullmatch("[0-9]{1,129}", text):
        raise ConfigurationError(option, str(entry), valid)
    return text


def _check_stream(option: str, metadata: object, stream: str) -> None:
    stored = metadata.get("streamName") if isinstance(metadata, dict) else None
    if stored is not None and stored != stream_name(stream):
        reason = f"these positions are of the stream {stored!r}"
        raise ConfigurationError(option, str(stored), repr(stream_name(stream)), reason=reason)


def _state_of(option: str, entry: object) -> ShardState:
    """Return the state in which one shard starts. A text is TRIM_HORIZON, LATEST, or the number of the first record to read."""
    if isinstance(entry, dict):
        return _stored_state(option, entry)
    position = position_of(option, entry, VALID_BY_SHARD, PositionType.TRIM_HORIZON, PositionType.LATEST)
    if position.isdecimal():
        return ShardState(StartingPosition(PositionType.AT_SEQUENCE_NUMBER, position))
    return ShardState(StartingPosition(PositionType(position)))


def _stored_state(option: str, entry: Mapping[str, Any]) -> ShardState:
    """Return a position that a connector of qubole or awslabs has stored: with iteratorType and iteratorPosition, times in epoch ms."""
    kind, at = str(entry.get("iteratorType", "")).upper(), str(entry.get("iteratorPosition", ""))
    if kind == _SHARD_END:
        return ShardState(StartingPosition.trim_horizon(), ended=True)
    if kind not in list(PositionType):
        valid = f"an iteratorType of {', '.join(PositionType)}, {_SHARD_END}"
        raise ConfigurationError(option, json.dumps(entry), valid)
    if kind in (PositionType.TRIM_HORIZON, PositionType.LATEST):
        return ShardState(StartingPosition(PositionType(kind)))
    number = position_of(option, at, f"an iteratorPosition of digits for {kind}")
    if kind == PositionType.AT_TIMESTAMP:
        return ShardState(StartingPosition.at_timestamp(time_ms(option, number, "an iteratorPosition in epoch ms")))
    if kind == PositionType.AT_SEQUENCE_NUMBER:
        return ShardState(StartingPosition(PositionType.AT_SEQUENCE_NUMBER, number))
    sub_sequence = str(entry.get("subSequenceNumber", WHOLE_RECORD))
    is_inside = sub_sequence.isdecimal() and str(entry.get("isLast", "true")).lower() == "false"
    after = SequenceNumber(number, int(sub_sequence) if is_inside else WHOLE_RECORD)
    return ShardState(StartingPosition.trim_horizon(), position=after)


# The port through which the fetcher uses the worker of a job that runs alone (`fetcher/elastic/alone_worker.py`).


class AloneJob(Protocol):
    """Takes every shard, and stores the positions: by `store`, or for a `CommittingSink` by `settle`, `commit` and `publish`."""

    @property
    def counts(self) -> CommitCounts | None:
        """Numbers on the commits of a `CommittingSink`; None for other sinks."""

    async def open(self) -> tuple[int, list[State]]:
        """Acquire every shard, and return the epoch (each start has a higher one) and the stored snapshots."""

    async def store(self, state: State) -> None:
        """Store a snapshot."""

    async def settle(self) -> None:
        """Repeat a commit whose outcome is unknown."""

    async def commit(self, state: dict[str, Any], records: int = 0) -> None:
        """Stage the written records, and commit them with this snapshot. `records`: number of records written so far."""

    async def publish(self) -> None:
        """Make the committed rows visible."""

    async def close(self) -> None:
        """Close the stores."""
