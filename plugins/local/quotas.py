"""The service's rate limits, for those who want to meet them: all off unless asked for."""

from collections.abc import Hashable
from dataclasses import dataclass

from .clock import Clock
from .errors import limit_exceeded, throughput_exceeded


@dataclass(frozen=True, slots=True)
class Quotas:
    """Rates per second; None is no limit. `Quotas.service()` has the documented ones."""

    reads: float | None = None
    """GetRecords calls per shard."""
    read_bytes: float | None = None
    """Bytes that GetRecords returns per shard."""
    write_records: float | None = None
    write_bytes: float | None = None
    subscribes: float | None = None
    """SubscribeToShard calls per consumer and shard."""

    @classmethod
    def service(cls) -> "Quotas":
        """5 reads and 2 MiB read, 1,000 records and 1 MiB written per shard; 1 subscribe per consumer and shard."""
        return cls(reads=5, read_bytes=2 << 20, write_records=1000, write_bytes=1 << 20, subscribes=1)


@dataclass(slots=True)
class Bucket:
    """A second's worth of a rate, refilled as time goes by; it may be overdrawn by what is taken last."""

    rate: float
    level: float
    at_ms: int

    def refill(self, now_ms: int) -> None:
        """Add what the time since the last refill brings, up to one second's worth."""
        self.level = min(self.rate, self.level + (now_ms - self.at_ms) * self.rate / 1000)
        self.at_ms = now_ms


class Throttle:
    """Owns the buckets: one per rate and shard (or consumer and shard), made when first asked for."""

    def __init__(self, quotas: Quotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock
        self._buckets: dict[Hashable, Bucket] = {}

    def before_read(self, shard: Hashable) -> None:
        """Count a GetRecords call; raises ProvisionedThroughputExceededException."""
        overdrawn = self._level("read_bytes", shard, self._quotas.read_bytes) <= 0
        if overdrawn or not self._take("reads", shard, self._quotas.reads, 1):
            raise throughput_exceeded(f"Rate exceeded for shard {shard}.")

    def after_read(self, shard: Hashable, size: int) -> None:
        """Charge what was read. A full second's worth or more starts from empty: 10 MiB block a shard for 5 s."""
        if self._quotas.read_bytes is not None:
            bucket = self._bucket("read_bytes", shard, self._quotas.read_bytes)
            bucket.level = bucket.level - size if size < bucket.rate else -float(size)

    def admit_write(self, shard: Hashable, size: int) -> bool:
        """Take one record of `size` bytes from the shard's write rates; False when it does not fit."""
        quotas = self._quotas
        enough = (
            self._level("write_records", shard, quotas.write_records) >= 1
            and self._level("write_bytes", shard, quotas.write_bytes) >= size
        )
        if enough:
            self._take("write_records", shard, quotas.write_records, 1)
            self._take("write_bytes", shard, quotas.write_bytes, size)
        return enough

    def before_subscribe(self, pair: Hashable) -> None:
        """Count a SubscribeToShard call; raises LimitExceededException."""
        if not self._take("subscribes", pair, self._quotas.subscribes, 1):
            raise limit_exceeded(f"Rate exceeded for consumer and shard {pair}.")

    def _level(self, what: str, key: Hashable, rate: float | None) -> float:
        return float("inf") if rate is None else self._bucket(what, key, rate).level

    def _take(self, what: str, key: Hashable, rate: float | None, amount: float) -> bool:
        if rate is None:
            return True
        bucket = self._bucket(what, key, rate)
        if bucket.level < amount:
            return False
        bucket.level -= amount
        return True

    def _bucket(self, what: str, key: Hashable, rate: float) -> Bucket:
        now = self._clock.now_ms()
        bucket = self._buckets.setdefault((what, key), Bucket(rate, rate, now))
        bucket.refill(now)
        return bucket
