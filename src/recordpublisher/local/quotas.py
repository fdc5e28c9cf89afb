"""The service's rate limits; all are off by default."""

from collections.abc import Hashable
from dataclasses import dataclass

from recordpublisher.publishers import service_limits as limits

from .api_errors import limit_exceeded, throughput_exceeded
from .clock import Clock


@dataclass(frozen=True, slots=True)
class Quotas:
    """Rates per second. None means without limit. `Quotas.service()` returns the documented rates."""

    reads: float | None = None
    """GetRecords calls of a shard."""
    read_bytes: float | None = None
    """Bytes that GetRecords returns from a shard."""
    write_records: float | None = None
    write_bytes: float | None = None
    subscribes: float | None = None
    """SubscribeToShard calls for a consumer and shard."""

    @classmethod
    def service(cls) -> "Quotas":
        """Return the rates that the service documents: `publishers/service_limits.py`."""
        return cls(
            reads=limits.GET_RECORDS_CALLS_PER_SECOND,
            read_bytes=limits.READ_BYTES_PER_SECOND,
            write_records=limits.WRITE_RECORDS_PER_SECOND,
            write_bytes=limits.WRITE_BYTES_PER_SECOND,
            subscribes=1 / limits.SECONDS_BETWEEN_SUBSCRIBE_CALLS,
        )


@dataclass(slots=True)
class Bucket:
    """A token bucket of one second's rate; the last charge may overdraw it."""

    rate: float
    level: float
    at_ms: int

    def refill(self, now_ms: int) -> None:
        """Add the tokens since the last refill, up to one second's worth."""
        self.level = min(self.rate, self.level + (now_ms - self.at_ms) * self.rate / 1000)
        self.at_ms = now_ms


class Throttle:
    """Owns the buckets: one per rate and shard (or consumer and shard), created on first use."""

    def __init__(self, quotas: Quotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock
        self._buckets: dict[Hashable, Bucket] = {}

    def before_read(self, shard: Hashable) -> None:
        """Count a GetRecords call. Raises: ProvisionedThroughputExceededException if the shard's rate is used up."""
        read = self._bucket("read_bytes", shard, self._quotas.read_bytes)
        if (read is not None and read.level <= 0) or not self._take_call("reads", shard, self._quotas.reads):
            raise throughput_exceeded(f"Rate exceeded for shard {shard}.")

    def after_read(self, shard: Hashable, size: int) -> None:
        """Charge the bytes that were read. A read of a second's worth or more starts from empty: 10 MiB block a shard for 5 s."""
        bucket = self._bucket("read_bytes", shard, self._quotas.read_bytes)
        if bucket is not None:
            bucket.level = bucket.level - size if size < bucket.rate else -float(size)

    def admit_write(self, shard: Hashable, size: int) -> bool:
        """Take one record of `size` bytes from the shard's write rates, and return whether it fits."""
        records = self._bucket("write_records", shard, self._quotas.write_records)
        data = self._bucket("write_bytes", shard, self._quotas.write_bytes)
        # a record larger than a second's worth (a stream option) is admitted by a full bucket and overdraws it
        fits = (records is None or records.level >= 1) and (data is None or data.level >= min(size, data.rate))
        if fits and records is not None:
            records.level -= 1
        if fits and data is not None:
            data.level -= size
        return fits

    def before_subscribe(self, pair: Hashable) -> None:
        """Count a SubscribeToShard call. Raises: LimitExceededException if the rate is used up."""
        if not self._take_call("subscribes", pair, self._quotas.subscribes):
            raise limit_exceeded(f"Rate exceeded for consumer and shard {pair}.")

    def _take_call(self, what: str, key: Hashable, rate: float | None) -> bool:
        bucket = self._bucket(what, key, rate)
        if bucket is not None and bucket.level < 1:
            return False
        if bucket is not None:
            bucket.level -= 1
        return True

    def _bucket(self, what: str, key: Hashable, rate: float | None) -> Bucket | None:
        """Return the bucket, filled up to now, or None if there is no limit."""
        if rate is None:
            return None
        now = self._clock.now_ms()
        bucket = self._buckets.setdefault((what, key), Bucket(rate, rate, now))
        bucket.refill(now)
        return bucket
