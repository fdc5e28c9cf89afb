"""Measures what arrives in a shard with one or two reads near its tip. No stored position is needed."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from recordpublisher.publishers.kinesis.ports import PollingPort
from recordpublisher.publishers.polling.shard_probe import MAX_READS, PAUSE_SECONDS
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.records import UserRecord, to_millis
from recordpublisher.publishers.shards import Shard

FEW_RECORDS, MANY_RECORDS = 100, 1_000
SHORT_MS = 2_000
"""A shard takes 1 MB a second, so the records of this time are at most the 2 MB that a shard returns each second."""
LONGER_MS = 20_000
"""Read if no record arrived in the last two seconds, because the records came in a burst."""


@dataclass(frozen=True, slots=True)
class ShardActivity:
    """Kinesis records and bytes of data that arrive per second, and the newest record (`tip`: sequence number, `tip_age_ms`: age in ms).

    Values that are not known are None. If no record arrived within the interval, the rates are 0 and the newest record is not known.
    """

    records_per_second: float | None = None
    bytes_per_second: float | None = None
    tip: str | None = None
    tip_age_ms: int | None = None


async def measure_activity(port: PollingPort, shard: Shard, now_ms: int, interval_ms: int) -> ShardActivity:
    """Read the records that arrived within the interval. If there are more than a few, read the last seconds in which records arrived.

    Raises: KinesisError if a call fails; nothing is retried.
    """
    start_ms = now_ms - interval_ms
    few = await _read_since(port, shard, start_ms, FEW_RECORDS)
    if few is None:
        return ShardActivity()
    if few[1]:
        return _until_tip(few[0], start_ms, now_ms)
    for window_ms in (SHORT_MS, LONGER_MS, interval_ms):
        start_ms = now_ms - min(window_ms, interval_ms)
        found = await _read_since(port, shard, start_ms, MANY_RECORDS)
        if found is None:
            break
        records, is_at_tip = found
        if records:
            if is_at_tip:
                return _until_tip(records, start_ms, now_ms)
            # A longer window has more records than one read returns, and the shorter windows had none: it was a burst, and no record
            # arrives now.
            return _between(records) if window_ms == SHORT_MS else ShardActivity(0.0, 0.0)
    return ShardActivity()


async def _read_since(
    port: PollingPort, shard: Shard, start_ms: int, limit: int
) -> tuple[Sequence[UserRecord], bool] | None:
    """Return the first records after a time, and whether there are no more.

    None if several empty responses in a row reached neither a record nor the tip.
    """
    iterator: str | None = await port.get_shard_iterator(shard, StartingPosition.at_timestamp(start_ms))
    for _ in range(MAX_READS):
        if iterator is None:
            return (), True
        response = await port.get_records(shard, iterator, limit)
        is_at_tip = response.next_iterator is None or not response.millis_behind_latest
        if response.records or is_at_tip:
            return response.records, is_at_tip
        iterator = response.next_iterator
        await asyncio.sleep(PAUSE_SECONDS)
    return None


def _until_tip(records: Sequence[UserRecord], start_ms: int, now_ms: int) -> ShardActivity:
    if not records:
        return ShardActivity(0.0, 0.0)
    newest_ms = to_millis(records[-1].arrival)
    seconds = (max(now_ms, newest_ms) - start_ms) / 1000
    size = sum(len(record.data) for record in records)
    return ShardActivity(
        len(records) / seconds, size / seconds, records[-1].sequence_number, max(0, now_ms - newest_ms)
    )


def _between(records: Sequence[UserRecord]) -> ShardActivity:
    """Return the rates between the first and the last of these records. Newer records follow, whose number is not known."""
    seconds = (to_millis(records[-1].arrival) - to_millis(records[0].arrival)) / 1000
    if not seconds:
        return ShardActivity()
    size = sum(len(record.data) for record in records[1:])
    return ShardActivity((len(records) - 1) / seconds, size / seconds)
