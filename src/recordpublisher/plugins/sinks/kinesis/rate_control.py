"""ShardRateLimit: the most that one shard may be sent. How much of it other writers leave is found by `adaptive_rate.py`."""

from __future__ import annotations

from dataclasses import dataclass

BURST_SECONDS = 0.25
"""One call sends a shard as much as it accepts in this time, then the shard pauses: few large calls instead of many small ones."""
MAX_CREDIT_SECONDS = 0.5
"""At most this much unused time may be caught up on. The service allows a second; this plus one burst stays below that."""


@dataclass(frozen=True, slots=True)
class ShardRateLimit:
    """Records and bytes per second that one shard may be sent: the service's limits times `RateLimit`; and the part of them used first."""

    records_per_second: float
    bytes_per_second: float
    initial_fraction: float = 1.0

    def seconds_for(self, records: int, size: int) -> float:
        """How long the shard needs for this many records and bytes at its rate limit."""
        return max(records / self.records_per_second, size / self.bytes_per_second)
