"""Plans a batch read: its parts, one for each shard, with start and end, and which task reads which parts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recordpublisher.publishers.errors import ConfigurationError, DataLossError
from recordpublisher.publishers.initial_position import check_end
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.properties.times import iso_time
from recordpublisher.publishers.shards import Shard

from ..options.spark_options import END_OPTION
from ..options.start_by_shard import START_OPTION
from .read_range import EndPosition, ReadRange

if TYPE_CHECKING:
    from ..service.kinesis_service import KinesisService

LOG = logging.getLogger("recordpublisher.spark")
SETTLED_MS = 1_000
"""A record may become readable a moment after its arrival.

If the end is older than this by the service's clock, all records before it are readable.
"""
LONGEST_WAIT_SECONDS = 10.0
"""Longest wait until the end has passed by the service's clock: for an end at NOW, and for a driver whose clock is ahead."""
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ShardRange:
    """The part of a shard that a task reads. It includes the start and excludes the end."""

    shard: Shard
    start: StartingPosition
    end: EndPosition


def shard_ranges(
    streams: tuple[str, ...],
    positions: ReadRange,
    service: KinesisService,
    accepts_loss: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> list[ShardRange]:
    """Return the parts to read. They hold the same records whenever they are planned.

    Records that arrive later are behind the end, and so are all records of shards that are created later.

    Raises: ConfigurationError if an end is in the future, or if a shard does not exist; DataLossError if the start is past retention.
    """
    ranges = []
    for stream in streams:
        _check_retained(stream, positions.starts.default, service, accepts_loss)
        _wait_until_settled(stream, positions.end.arrival_ms, service, sleep)
        shards = service.list_shards(stream)
        _check_exist(stream, shards, positions)
        chosen = [shard for shard in shards if positions.shards is None or shard.shard_id in positions.shards]
        ranges += [ShardRange(shard, *positions.of(shard)) for shard in chosen]
    return ranges


def shared_among(tasks: int, parts: Sequence[ShardRange]) -> list[tuple[ShardRange, ...]]:
    """Return the parts that each of `tasks` tasks reads. Neighbours in the listing, often parents or children, go to different tasks."""
    return [tuple(parts[number::tasks]) for number in range(min(tasks, len(parts)))]


def _check_exist(stream: str, shards: list[Shard], positions: ReadRange) -> None:
    missing = (positions.shards or frozenset()) - {shard.shard_id for shard in shards}
    if missing:
        option = START_OPTION if positions.starts.by_shard else END_OPTION
        valid = ", ".join(shard.shard_id for shard in shards)
        raise ConfigurationError(option, ", ".join(sorted(missing)), valid, reason=f"{stream} has no such shard")


def _check_retained(stream: str, start: StartingPosition, service: KinesisService, accepts_loss: bool) -> None:
    if start.type is not PositionType.AT_TIMESTAMP or start.timestamp_ms is None:
        return
    oldest = service.oldest_retained_ms(stream)
    if oldest is None or oldest <= start.timestamp_ms:
        return
    lost = f"the read of {stream} starts at {iso_time(start.timestamp_ms)}, and records before {iso_time(oldest)} are past its retention"
    if not accepts_loss:
        raise DataLossError(f"{lost}; start later, or set flink.state.dataloss=CONTINUE (failOnDataLoss=false)")
    LOG.warning("%s; going on because flink.state.dataloss=CONTINUE", lost)


def _wait_until_settled(stream: str, end_ms: int, service: KinesisService, sleep: Callable[[float], None]) -> None:
    """Wait until a read finds all records that arrived before the end. Later reads then find the same records.

    Raises: ConfigurationError if the end is too far in the future.
    """
    waited = 0.0
    while (now_ms := service.server_time_ms(stream)) < end_ms + SETTLED_MS:
        if waited >= LONGEST_WAIT_SECONDS or end_ms - now_ms > LONGEST_WAIT_SECONDS * 1000:
            clock = "the service's clock (NOW is by the driver's)"
            check_end(END_OPTION, iso_time(end_ms), end_ms + SETTLED_MS, now_ms=now_ms, clock=clock)
        sleep(POLL_SECONDS)
        waited += POLL_SECONDS
