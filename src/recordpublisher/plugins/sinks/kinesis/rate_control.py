"""ShardRateLimit: the most that one shard may be sent. What other writers leave of it is found by `congestion_window.py`."""

from __future__ import annotations

from dataclasses import dataclass

BURST_SECONDS = 0.25
"""One call sends a shard as much as it accepts in this time, then the shard pauses: few large calls instead of many small ones."""
MAX_CREDIT_SECONDS = 0.5
"""At most this much unused time may be caught up on. The service allows a second; this plus one burst stays below that."""


@dataclass(frozen=True, slots=True)
class ShardRateLimit:
    """Records and bytes per second that one shard may be sent: the service's limits times `RateLimit`; and the initial window."""

    records_per_second: float
    bytes_per_second: float
    initial_window: int = 5_000
    """Of the congestion window: records in flight at the start."""

    @property
    def burst_records(self) -> int:
        """Records that may be sent to the shard at once."""
        return max(1, int(self.records_per_second * BURST_SECONDS))

    @property
    def burst_bytes(self) -> int:
        """Bytes that may be sent to the shard at once; a larger record goes alone."""
        return int(self.bytes_per_second * BURST_SECONDS)

    def pause_seconds(self, records: int, size: int, window: float) -> float:
        """How long the shard pauses after this many records and bytes."""
        return max(records / self.records_per_second, size / self.bytes_per_second, BURST_SECONDS * records / window)
