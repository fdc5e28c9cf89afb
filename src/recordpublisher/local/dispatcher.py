"""Exchange: one request to one answer, with the faults that befall it on the way."""

import asyncio

import msgspec

from . import requests
from .api_errors import ApiError, limit_exceeded, not_found, throughput_exceeded
from .faults.kinds import FaultKind
from .faults.random_faults import Drawn
from .operations.reading import subscribe_to_shard
from .operations.table import OPERATIONS, decoder
from .streams.account import Account
from .streams.shard_iterator import ShardIterator
from .streams.subscriptions import Subscription

REFUSAL_MS = 1_000  # a throttled shard refuses reads for the rest of a second (API reference of GetRecords)
PAGE = b"<html><body><h1>503 Service Unavailable</h1>No server is available to handle this request.</body></html>"


class PageError(Exception):
    """The answer is a page of HTML that a proxy made."""


class _About(msgspec.Struct, rename="pascal"):
    """What a request is about, whatever it asks."""

    shard_id: str | None = None
    shard_iterator: str | None = None
    consumer_name: str | None = None
    stream_arn: str | None = msgspec.field(name="StreamARN", default=None)


_about = msgspec.json.Decoder(_About).decode
_decode_subscribe = decoder(requests.SubscribeToShard)


class Exchange:
    """Answers requests for whoever carries them. Owns which shards refuse reads for a moment."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._faults = account.faults
        self._refusing_until: dict[str, int] = {}

    async def answer(self, operation: str, body: bytes) -> bytes:
        """The body of the answer. Raises: ApiError, PageError, ConnectionAbortedError for a connection that breaks."""
        drawn = await self._before(operation, body)
        answer = OPERATIONS[operation](self._account, body)
        if drawn is None:
            self._faults.answered(operation, lambda: self._target(body))
        await self._after(operation, drawn)
        return answer[: len(answer) // 2] if drawn is not None and drawn.kind is FaultKind.HALF else answer

    async def subscribe(self, body: bytes) -> Subscription:
        """An open subscription, still to be pushed. Raises: as `answer`."""
        drawn = await self._before("SubscribeToShard", body)
        subscription = subscribe_to_shard(self._account, _decode_subscribe(body))
        try:
            await self._after("SubscribeToShard", drawn)
        except BaseException:
            self._account.subscriptions.close(subscription)
            raise
        return subscription

    async def _before(self, operation: str, body: bytes) -> Drawn | None:
        """Meet what is planned or drawn for a call before it is carried out."""
        self._faults.before_call(operation)
        self._still_refusing(operation, body)
        drawn = self._faults.for_call(operation, lambda: self._target(body))
        match drawn and drawn.kind:
            case FaultKind.THROTTLE:
                raise self._throttled(operation, body)
            case FaultKind.ERROR:
                raise ApiError("InternalFailure", "injected", 500)
            case FaultKind.MISSING:
                raise not_found("injected: it is there and not found")
            case FaultKind.EXPIRE:
                raise ApiError("ExpiredIteratorException", "Iterator expired: injected.")
            case FaultKind.RESET:
                raise ConnectionAbortedError(operation)
            case FaultKind.PAGE:
                raise PageError
        if drawn is not None:
            await self._disturb(drawn, body)
        return drawn

    async def _disturb(self, drawn: Drawn, body: bytes) -> None:
        """What changes the world around a call that is carried out nevertheless."""
        milliseconds = round(drawn.seconds * 1000)
        match drawn.kind:
            case FaultKind.SLOW:
                await asyncio.sleep(drawn.seconds)
            case FaultKind.STALE:
                self._faults.listing_age_ms = milliseconds
            case FaultKind.SKEW:
                self._account.clock.step(milliseconds)
                self._account.subscriptions.wake_all()
            case FaultKind.DELETING:
                about = _about(body)
                stream = self._account.find(arn=about.stream_arn)
                stream.consumers.plant_deleting(about.consumer_name or "", milliseconds)

    @staticmethod
    async def _after(operation: str, drawn: Drawn | None) -> None:
        """Meet what befalls an answer on its way back."""
        if drawn is not None and drawn.kind is FaultKind.LATE:
            await asyncio.sleep(drawn.seconds)
        if drawn is not None and drawn.kind is FaultKind.LOST:
            raise ConnectionAbortedError(operation)

    def _throttled(self, operation: str, body: bytes) -> ApiError:
        if operation not in ("GetRecords", "PutRecord", "PutRecords"):
            return limit_exceeded("Rate exceeded: injected.")
        if operation == "GetRecords":
            self._refusing_until[self._target(body)] = self._account.clock.now_ms() + REFUSAL_MS
        return throughput_exceeded("Rate exceeded: injected.")

    def _still_refusing(self, operation: str, body: bytes) -> None:
        if operation == "GetRecords" and self._refusing_until:
            until = self._refusing_until.get(self._target(body), 0)
            if self._account.clock.now_ms() < until:
                raise throughput_exceeded("Rate exceeded: it is refused for the rest of the second.")

    def _target(self, body: bytes) -> str:
        """The shard or the consumer that a request is about, nothing where it is about neither."""
        try:
            about = _about(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ""
        if about.shard_iterator is not None:
            place = self._account.tokens.open(about.shard_iterator, ShardIterator)
            return place.shard_id if place is not None else ""
        return about.shard_id or about.consumer_name or ""
