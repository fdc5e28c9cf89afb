"""SinkCase: a target for the contracts of sinks, and the batches that they write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.sink import Checkpoint, Sink, State
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

ARRIVAL = 1_700_000_000.5


@dataclass(frozen=True, slots=True)
class SinkCase:
    """An empty target, with functions to write to it and to read it.

    - `start`: makes a sink that writes to the target, as each start of a job does.
    - `written`: reads the payloads that are in the target, the payloads of one shard in their order. The contract
      writes payloads such as `b"7"`.
    - `state_store`: needed for a sink that commits and has no entries with its rows.
    """

    start: Callable[[], Sink]
    written: Callable[[], Awaitable[Sequence[bytes]]]
    state_store: ConditionalStore | None = None


def batch_of(shard_id: str, *numbers: int) -> RecordBatch:
    """Return records of one partition key, with the number as payload and as sequence number."""
    records = [UserRecord(b"%d" % number, str(number), ARRIVAL, "key") for number in numbers]
    position, size = SequenceNumber(str(numbers[-1])), sum(len(record.data) for record in records)
    return RecordBatch(Shard("orders", shard_id), records, 0, position, raw_count=len(records), raw_bytes=size)


def checkpoint_at(position: int, generation: int = 1) -> Checkpoint:
    """Return a checkpoint with one position."""
    return Checkpoint({"version": 2, "generation": generation, "shards": {"orders/a": {"position": str(position)}}})


def states_of(stored: State | Sequence[State] | None) -> list[State]:
    """Return the result of `Sink.open` as a list."""
    return [stored] if isinstance(stored, Mapping) else list(stored or [])
