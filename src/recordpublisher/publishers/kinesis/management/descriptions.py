"""Streams as ListStreams and DescribeStreamSummary describe them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recordpublisher.publishers.service_limits import DEFAULT_RECORD_BYTES
from recordpublisher.publishers.shards import Shard

from ..ports import ConsumerDescription


@dataclass(frozen=True, slots=True)
class ListedStream:
    """A stream as it is listed. `mode` is PROVISIONED or ON_DEMAND."""

    name: str
    arn: str
    status: str
    mode: str
    created: datetime

    @classmethod
    def parse(cls, described: dict[str, Any]) -> ListedStream:
        """Raises: KeyError for a description that is not as documented."""
        return cls(
            described["StreamName"],
            described["StreamARN"],
            described["StreamStatus"],
            described["StreamModeDetails"]["StreamMode"],
            described["StreamCreationTimestamp"],
        )


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """A stream with its settings, consumers and listed shards. `encryption_key` is None without encryption at rest."""

    stream: ListedStream
    retention_hours: int
    max_record_bytes: int
    distributes_by_key: bool
    encryption_key: str | None
    consumers: tuple[ConsumerDescription, ...] = ()
    shards: tuple[Shard, ...] = ()

    @property
    def open_shards(self) -> int:
        """How many shards take records."""
        return sum(not shard.closed for shard in self.shards)

    @classmethod
    def parse(cls, summary: dict[str, Any]) -> StreamDescription:
        """The settings. Raises: KeyError or ValueError for a summary that is not as documented."""
        return cls(
            ListedStream.parse(summary),
            int(summary["RetentionPeriodHours"]),
            int(summary.get("MaxRecordSizeInKiB", DEFAULT_RECORD_BYTES // 1024)) * 1024,
            summary.get("RecordDistributionStrategy") != "AUTO",
            summary.get("KeyId") if summary.get("EncryptionType", "NONE") != "NONE" else None,
        )
