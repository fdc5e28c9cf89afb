"""The streams of the endpoint's only account and region."""

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from secrets import randbits
from typing import TypeVar

import msgspec

from ..api_errors import in_use, invalid_argument, not_found
from ..clock import Clock, SteppingClock
from ..faults.injector import Faults
from ..queues.queue import QueueTable
from ..quotas import Quotas, Throttle
from .consumers import CONSUMER_LIMIT
from .stream import Stream
from .subscriptions import Subscriptions

ACCOUNT_ID = "000000000000"


@dataclass(frozen=True, slots=True)
class Delays:
    """How long control operations take, in ms of the endpoint's clock."""

    create_stream: int = 0
    delete_stream: int = 0
    reshard: int = 0
    consumer: int = 100
    """The time from CREATING to ACTIVE and from DELETING to gone, for consumers and queues, and the time that a queue is UPDATING."""
    cut_stuck_reader: int = 10_000
    """The time from the end of a subscription's five minutes until a client that does not read is disconnected."""


class Account:
    """Owns the streams by name and the registries that span them."""

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

    def call_on_change(self, on_change: Callable[[], None] | None) -> None:
        """Set the function that is called when anything other than records has changed."""
        self._on_change = on_change

    def changed(self) -> None:
        """Call the function for changes: anything other than records has changed."""
        if self._on_change is not None:
            self._on_change()

    def wake_all(self) -> None:
        """Let every open subscription and long poll check again, because the time has changed or faults are planned."""
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

        Raises: ResourceNotFoundException if there is none; InvalidArgumentException if neither is given, or if both name different streams.
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
        """Return a stream that records can be put into and read from: ACTIVE or UPDATING.

        Raises: ResourceNotFoundException if it is in another state; the errors of `find`.
        """
        stream = self.find(name, arn)
        if stream.status in ("CREATING", "DELETING"):
            raise not_found(f"Stream {stream.name} under account {ACCOUNT_ID} not found: it is {stream.status}.")
        return stream


T = TypeVar("T", bound=msgspec.Struct)


class Tokens:
    """Creates and opens tokens. A token of another endpoint, or an invented one, does not open."""

    def __init__(self) -> None:
        self.seed = randbits(32)

    def seal(self, content: msgspec.Struct) -> str:
        """Return the content as one opaque string."""
        body = msgspec.msgpack.encode(content)
        return urlsafe_b64encode(zlib.crc32(body, self.seed).to_bytes(4, "big") + body).decode()

    def open(self, token: str, kind: type[T]) -> T | None:
        """Return the content, or None if the token is of another endpoint or of another kind."""
        try:
            raw = urlsafe_b64decode(token)
            if zlib.crc32(raw[4:], self.seed).to_bytes(4, "big") != raw[:4]:
                return None
            return msgspec.msgpack.decode(raw[4:], type=kind)
        except (ValueError, msgspec.DecodeError, RecursionError):
            return None
