"""Probes a shard with one small read: how far a position is behind its tip (A2), and which record is its oldest (S5)."""

import asyncio

import msgspec

from ..errors import TransientError
from ..kinesis.ports import PollingPort, ReadResponse
from ..positions import StartingPosition
from ..records import to_millis
from ..shards import OldestRecord, Shard

MAX_READS, MAX_READS_OF_OLDEST = 5, 20
"""Responses may be empty on the way to a record (service documentation). A probe ends after this many reads."""
PAUSE_SECONDS = 0.25
"""Seconds between two reads, because the shard's readers share its 5 calls a second."""


class TipDistance(msgspec.Struct, frozen=True):
    """The result of one probe.

    - `has_unread`: whether there is a record after the position.
    - `oldest_ms`: the arrival of that record (epoch ms).
    - `millis_behind`: MillisBehindLatest of the last response.
    """

    has_unread: bool
    oldest_ms: int | None = None
    millis_behind: int = 0


async def measure_tip_distance(port: PollingPort, shard: Shard, position: StartingPosition) -> TipDistance | None:
    """Read one record after `position`. Return None if several empty responses in a row did not reach the tip.

    As a rule this takes two calls: one for the iterator, and one GetRecords with Limit 1.

    Raises: KinesisError if a call fails. No call is retried.
    """
    iterator: str | None = await port.get_shard_iterator(shard, position)
    for _ in range(MAX_READS):
        if iterator is None:
            break
        response = await port.get_records(shard, iterator, 1)
        distance = _distance_from(response)
        if distance is not None:
            return distance
        iterator = response.next_iterator
        await asyncio.sleep(PAUSE_SECONDS)
    return None


def _distance_from(response: ReadResponse) -> TipDistance | None:
    behind = response.millis_behind_latest or 0
    if response.records:
        return TipDistance(True, to_millis(response.records[0].arrival), behind)
    return TipDistance(False) if behind == 0 or response.next_iterator is None else None


async def read_oldest_record(port: PollingPort, shard: Shard) -> OldestRecord:
    """Return the oldest record that the shard still has, by a read from TRIM_HORIZON.

    Raises: TransientError if many empty responses in a row did not reach the tip; KinesisError if a call fails. No call
    is retried.
    """
    iterator: str | None = await port.get_shard_iterator(shard, StartingPosition.trim_horizon())
    for _ in range(MAX_READS_OF_OLDEST):
        response = await port.get_records(shard, iterator, 1) if iterator is not None else None
        if response is None or (not response.records and response.millis_behind_latest == 0):
            return OldestRecord()
        if response.records:
            return OldestRecord(response.records[0].sequence_number, to_millis(response.records[0].arrival))
        iterator = response.next_iterator
        await asyncio.sleep(PAUSE_SECONDS)
    raise TransientError(
        "GetRecords", "OnlyEmptyResponses", f"{MAX_READS_OF_OLDEST} reads of {shard.key} from its oldest record"
    )
