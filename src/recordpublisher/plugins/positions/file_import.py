"""Imports a file of positions into another job. `recordpublisher positions show --json` prints such a file."""

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recordpublisher.fetcher.conditional_store import read_document
from recordpublisher.fetcher.leases.group_store import MissingPositionsError
from recordpublisher.fetcher.shards.shard_state import ShardState, StoredState
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.kinesis.ports import ListingPort
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import LIST_SHARDS_RETRIES
from recordpublisher.publishers.retry import call_with_retries
from recordpublisher.publishers.shards import Shard, stream_name, stream_of

from .job_positions import ImportedPosition, JobPositions, imported_states


@dataclass(frozen=True, slots=True)
class FileTransfer:
    """Transfers positions from a file to a job.

    - `lister`: lists the shards of the job's streams.
    - `streams`: the job's streams, as the lister accepts them: names or ARNs.
    - `is_forced`: whether the positions of the file replace those that the job has.
    """

    job: JobPositions
    path: Path
    lister: ListingPort
    streams: Sequence[str]
    properties: Properties
    is_forced: bool = False

    async def plan_import(self) -> list[ImportedPosition]:
        """Return the positions from which the job would start.

        Raises: ConfigurationError if the job has no state store, or if the file cannot be read; StateError if the file has invalid lines or
        other streams than the job, or if the job has positions.
        """
        self.job.check_writable()
        try:
            (await self.job.load()).check_unused(self.is_forced)
        except MissingPositionsError:  # Another sink keeps them, so there is nothing to replace.
            if not self.is_forced:
                raise
        policy = LIST_SHARDS_RETRIES.policy(self.properties)
        listed: list[Shard] = []
        for stream in self.streams:
            listed += await call_with_retries(functools.partial(self.lister.list_shards, stream), policy)
        return positions_from_states(read_positions(self.path), listed, [*map(stream_name, self.streams)])

    async def apply_import(self, plan: Sequence[ImportedPosition]) -> None:
        """Store the planned positions. Raises: StateError if they would replace those of a group, and a worker of the group is running."""
        if self.is_forced and not self.job.are_stored_by_the_sink:
            await self.job.store_over(imported_states(plan))
        else:
            await self.job.store(imported_states(plan))


def read_positions(path: Path) -> dict[str, ShardState]:
    """Return the state of each shard by `Shard.key`, in the order of the file.

    Raises: ConfigurationError if the file cannot be read; StateError, naming the line, if a line has no valid position or repeats a shard.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError("--from", f"file:{path}", "a file that can be read", reason=str(error)) from error
    states: dict[str, ShardState] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        shard, state = _parse(line, f"line {number} of {path}")
        if shard in states:
            raise StateError(f"line {number} of {path} has {shard} a second time")
        states[shard] = state
    return states


def positions_from_states(
    states: Mapping[str, ShardState], listed: Sequence[Shard], streams: Collection[str]
) -> list[ImportedPosition]:
    """Return the positions from which the job starts. `states`: those in the file. `streams`: the names of the job's streams.

    Raises: StateError if `states` has a stream that the job does not read, or lacks one that it reads.
    """
    found = {stream_of(shard) for shard in states}
    if others := sorted(found - set(streams)):
        raise StateError(
            f"the file has positions of {', '.join(others)}, and the job reads {', '.join(sorted(streams))}: "
            "remove the lines of the other streams"
        )
    if missing := sorted(set(streams) - found):
        raise StateError(
            f"the file has no position of {', '.join(missing)}, which the job reads: take a file with every stream of the job"
        )
    known = {shard.key for shard in listed}
    imported = [ImportedPosition(shard, "yes", state, _note(state, shard in known)) for shard, state in states.items()]
    return sorted(imported, key=lambda position: position.shard)


def _parse(line: str, where: str) -> tuple[str, ShardState]:
    """Return the shard and the state of a line as `positions show --json` prints it. Raises: StateError if the line has another form."""
    stored = read_document(line, _StoredLine, f"{where}, which must be as `positions show --json` prints it,")
    stream, _, shard_id = stored.shard.rpartition("/")
    if not stream or not shard_id:
        raise StateError(f"{where} has the shard {stored.shard!r}: it must be stream/shard-id")
    return stored.shard, stored.state


class _StoredLine(StoredState, rename="camel", kw_only=True):
    shard: str


def _note(state: ShardState, is_listed: bool) -> str:
    return "" if is_listed or state.ended else "the stream no longer lists it: its unread records are lost"
