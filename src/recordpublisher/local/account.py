"""The streams of the endpoint's only account and region, and the rate limits of the service."""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from secrets import randbits
from typing import TypeVar

import msgspec

from recordpublisher.publishers import service_limits as limits

from .clock import Clock, SteppingClock
from .errors import in_use, invalid_argument, limit_exceeded, not_found, throughput_exceeded
from .faults import Faults
from .record_queues import QueueTable
from .stream import CONSUMER_LIMIT, Stream
from .subscriptions import Subscriptions

ACCOUNT_ID = "000000000000"


T = TypeVar("T", bound=msgspec.Struct)


class Account:
    """An account of the endpoint: its streams, and the tokens, faults, rate limits, subscriptions and queues that they share."""

    def __init__(
        self, clock: Clock, region: str, delays: Delays, quotas: Quotas | None, consumer_limit: int = CONSUMER_LIMIT
    ) -> None:
        self.clock = clock = SteppingClock(clock)
        self.region = region
        self.delays = delays
        self.consumer_limit = consumer_limit
        self.tokens = Tokens()
        self.faults = Faults()
        self.throttle = Throttle(quotas, clock) if quotas else None
        self.subscriptions = Subscriptions(clock)
        arn_prefix = f"arn:aws:kinesis:{region}:{ACCOUNT_ID}"
        self.queues = QueueTable(clock, arn_prefix)
        self._on_change: Callable[[], None] | None = None
        self._streams: dict[str, Stream] = {}

    def set_change_listener(self, on_change: Callable[[], None] | None) -> None:
        """Set the function that is called at each change, except when only records have changed."""
        self._on_change = on_change

    def report_change(self) -> None:
        """Call the function of `set_change_listener`, because something other than records has changed."""
        if self._on_change is not None:
            self._on_change()

    def wake_all(self) -> None:
        """Wake every open subscription and long poll, because the time has changed or a fault was planned."""
        self.subscriptions.wake_all()
        for queue in self.queues.all():
            queue.notify()

    def create_stream(self, name: str, shard_count: int) -> Stream:
        """Add a stream. Raises: ResourceInUseException if the name is taken."""
        if name in self.streams():
            raise in_use(f"Stream {name} under account {ACCOUNT_ID} already exists.")
        arn = f"arn:aws:kinesis:{self.region}:{ACCOUNT_ID}:stream/{name}"
        delays = self.delays
        stream = Stream(arn, shard_count, self.clock, delays.create_stream, delays.consumer, self.consumer_limit)
        self._streams[name] = stream
        return stream

    def streams(self) -> dict[str, Stream]:
        """Return the streams that exist now, by name."""
        gone = [name for name, stream in self._streams.items() if stream.is_gone]
        for name in gone:
            del self._streams[name]
        return self._streams

    def find(self, name: str | None = None, arn: str | None = None) -> Stream:
        """Return the stream with that name or ARN.

        Raises: ResourceNotFoundException if no stream has it; InvalidArgumentException if neither a name nor an ARN is given, or if they
        belong to different streams.
        """
        if name is None and arn is None:
            raise invalid_argument("Either StreamName or StreamARN must be given.")
        by_arn = None if arn is None else arn.partition(":stream/")[2].partition("/")[0]
        if name and by_arn and name != by_arn:
            raise invalid_argument(f"StreamName {name} and StreamARN {arn} name different streams.")
        stream = self.streams().get(name or by_arn or "")
        if stream is None or (arn is not None and not arn.startswith(stream.arn)):
            raise not_found(f"Stream {name or by_arn or arn} under account {ACCOUNT_ID} not found.")
        return stream

    def find_usable(self, name: str | None = None, arn: str | None = None) -> Stream:
        """Return a stream whose records can be written and read: one that is ACTIVE or UPDATING.

        Raises: ResourceNotFoundException if the stream does not exist or is in another state; InvalidArgumentException as in `find`.
        """
        stream = self.find(name, arn)
        if stream.status in ("CREATING", "DELETING"):
            raise not_found(f"Stream {stream.name} under account {ACCOUNT_ID} not found: it is {stream.status}.")
        return stream


@dataclass(frozen=True, slots=True)
class Delays:
    """How long control operations take, in ms of the endpoint's clock."""

    create_stream: int = 0
    delete_stream: int = 0
    reshard: int = 0
    consumer: int = 100
    """How long consumers and queues are CREATING or DELETING, and how long a queue is UPDATING (ms)."""
    cut_stuck_reader: int = 10_000
    """How long a client that does not read stays connected after the five minutes of its subscription (ms)."""


class Tokens:
    """Makes and reads tokens: texts that only this endpoint can read, such as shard iterators and NextToken."""

    def __init__(self) -> None:
        self.seed = randbits(32)

    def make(self, content: msgspec.Struct) -> str:
        """Return a token that contains `content`."""
        body = msgspec.msgpack.encode(content)
        return urlsafe_b64encode(zlib.crc32(body, self.seed).to_bytes(4, "big") + body).decode()

    def open(self, token: str, kind: type[T]) -> T | None:
        """Return the content of a token, or None if this endpoint has not made the token, or if the content is not a `kind`."""
        try:
            raw = urlsafe_b64decode(token)
            if zlib.crc32(raw[4:], self.seed).to_bytes(4, "big") != raw[:4]:
                return None
            return msgspec.msgpack.decode(raw[4:], type=kind)
        except (ValueError, msgspec.DecodeError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class Quotas:
    """The rates per second that the endpoint allows; None means no limit. `Quotas.service()` returns the documented rates."""

    reads: float | None = None
    """The rate of GetRecords calls for a shard."""
    read_bytes: float | None = None
    """The rate of bytes that GetRecords returns from a shard."""
    write_records: float | None = None
    write_bytes: float | None = None
    subscribes: float | None = None
    """The rate of SubscribeToShard calls for a consumer and shard."""

    @classmethod
    def service(cls) -> Quotas:
        """Return the rates that the service documents. They are declared in `publishers/service_limits.py`."""
        return cls(
            reads=limits.GET_RECORDS_CALLS_PER_SECOND,
            read_bytes=limits.READ_BYTES_PER_SECOND,
            write_records=limits.WRITE_RECORDS_PER_SECOND,
            write_bytes=limits.WRITE_BYTES_PER_SECOND,
            subscribes=1 / limits.SECONDS_BETWEEN_SUBSCRIBE_CALLS,
        )


@dataclass(slots=True)
class Bucket:
    """A token bucket that gets `rate` tokens a second, and has room for the tokens of one second.

    - `level`: the tokens that are left; negative after a read that took more than were left.
    """

    rate: float
    level: float
    at_ms: int

    def refill(self, now_ms: int) -> None:
        """Add the tokens for the time since the last refill, up to the room of the bucket."""
        self.level = min(self.rate, self.level + (now_ms - self.at_ms) * self.rate / 1000)
        self.at_ms = now_ms


class Throttle:
    """Enforces the quotas. Owns one token bucket for each rate and shard, and for SubscribeToShard one for each consumer and shard."""

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
        """Charge `size` bytes that were read from a shard.

        A read of at least the bytes of one second blocks further reads for `size` / rate seconds: 5 s for 10 MiB.
        """
        bucket = self._bucket("read_bytes", shard, self._quotas.read_bytes)
        if bucket is not None:
            bucket.level = bucket.level - size if size < bucket.rate else -float(size)

    def admit_write(self, shard: Hashable, size: int) -> bool:
        """Charge one record of `size` bytes to the shard's write rates. Return False, and charge nothing, if a rate is used up."""
        records = self._bucket("write_records", shard, self._quotas.write_records)
        data = self._bucket("write_bytes", shard, self._quotas.write_bytes)
        # A record may be larger than the bytes of one second (a stream option). A full bucket admits it, and is overdrawn.
        fits = (records is None or records.level >= 1) and (data is None or data.level >= min(size, data.rate))
        if fits and records is not None:
            records.level -= 1
        if fits and data is not None:
            data.level -= size
        return fits

    def before_subscribe(self, pair: Hashable) -> None:
        """Count a SubscribeToShard call for a consumer and shard. Raises: LimitExceededException if their rate is used up."""
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
        if rate is None:
            return None
        now = self._clock.now_ms()
        bucket = self._buckets.setdefault((what, key), Bucket(rate, rate, now))
        bucket.refill(now)
        return bucket
