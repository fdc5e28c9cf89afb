"""Carries out one request, and applies planned and random faults to it."""

import asyncio

import msgspec

from recordpublisher.publishers.undecodable import UNDECODABLE

from .api_errors import ApiError, limit_exceeded, not_found, throughput_exceeded
from .faults.kinds import QUEUES, FaultKind
from .faults.random_faults import DrawnFault
from .operations.queues import LONG_POLLS, NOTHING_VISIBLE
from .operations.reading import subscribe_to_shard
from .operations.table import OPERATIONS, decoder
from .requests.consumers import SubscribeToShard
from .requests.queues import Receive
from .streams.account import Account
from .streams.shard_iterator import ShardIterator
from .streams.subscriptions import Subscription

THROTTLE_MS = 1_000  # a throttled shard refuses reads for the rest of a second (API reference of GetRecords)
UNCHANGING = ("Get", "List", "Describe", "PutRecord")
"""Prefixes of operations that change nothing except records."""
HTML_PAGE = b"<html><body><h1>503 Service Unavailable</h1>No server is available to handle this request.</body></html>"


class HtmlPageError(Exception):
    """The response is an HTML page, such as a proxy sends."""


class _RequestTarget(msgspec.Struct, rename="pascal"):
    """The fields by which any request names a shard or a consumer."""

    shard_id: str | None = None
    shard_iterator: str | None = None
    consumer_name: str | None = None
    stream_arn: str | None = msgspec.field(name="StreamARN", default=None)


_decode_target = msgspec.json.Decoder(_RequestTarget).decode
_decode_subscribe = decoder(SubscribeToShard)
_decode_receive = decoder(Receive)


class RequestDispatcher:
    """Carries out requests for any transport. Owns the time until which each throttled shard refuses reads."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._faults = account.faults
        self._throttled_until: dict[str, int] = {}

    async def call(self, operation: str, body: bytes) -> bytes:
        """Carry out an operation, and return the body of the response.

        Raises: ApiError if the response is an error; HtmlPageError if it is an HTML page; ConnectionAbortedError if the connection must
        break.
        """
        drawn = await self._apply_fault_before(operation, body)
        response = OPERATIONS[operation](self._account, body)
        if response == NOTHING_VISIBLE and operation in LONG_POLLS:
            response = await self._poll(operation, body)
        if not operation.startswith(UNCHANGING):
            self._account.changed()
        if drawn is None:
            self._faults.on_success(operation, lambda: self._target(body))
        await self._apply_fault_after(operation, drawn)
        return response[: len(response) // 2] if drawn is not None and drawn.kind is FaultKind.HALF else response

    async def _poll(self, operation: str, body: bytes) -> bytes:
        """Repeat a call until its queue has visible records, or until the wait is over."""
        request, clock, response = _decode_receive(body), self._account.clock, NOTHING_VISIBLE
        until_ms = clock.now_ms() + request.wait_time_seconds * 1000
        now = (
            asyncio.get_running_loop().time
        )  # a second limit, because the account's clock may not advance (`ManualClock`)
        until = now() + request.wait_time_seconds
        while response == NOTHING_VISIBLE and clock.now_ms() < until_ms and now() < until:
            await self._account.queues.find(request.queue_arn).wait_for_change(until_ms, clock)
            response = OPERATIONS[operation](self._account, body)
        return response

    async def subscribe(self, body: bytes) -> Subscription:
        """Open a subscription; `write_events` sends its events. Raises: the errors of `call`."""
        drawn = await self._apply_fault_before("SubscribeToShard", body)
        subscription = subscribe_to_shard(self._account, _decode_subscribe(body))
        try:
            await self._apply_fault_after("SubscribeToShard", drawn)
        except BaseException:
            self._account.subscriptions.close(subscription)
            raise
        return subscription

    async def _apply_fault_before(self, operation: str, body: bytes) -> DrawnFault | None:
        """Apply the planned or drawn fault that comes before the call is carried out, and return the drawn one."""
        self._faults.before_call(operation)
        self._check_throttled(operation, body)
        drawn = self._faults.for_call(operation, lambda: self._target(body))
        match drawn and drawn.kind:
            case FaultKind.THROTTLE:
                raise self._throttled(operation, body)
            case FaultKind.ERROR:
                raise ApiError("InternalFailure", "injected", 500)
            case FaultKind.MISSING:
                raise not_found("injected: it exists")
            case FaultKind.EXPIRE:
                raise ApiError("ExpiredIteratorException", "Iterator expired: injected.")
            case FaultKind.RESET:
                raise ConnectionAbortedError(operation)
            case FaultKind.PAGE:
                raise HtmlPageError
        if drawn is not None:
            await self._apply_fault(drawn, body)
        return drawn

    async def _apply_fault(self, drawn: DrawnFault, body: bytes) -> None:
        """Apply a fault after which the call is still carried out."""
        milliseconds = round(drawn.seconds * 1000)
        match drawn.kind:
            case FaultKind.SLOW:
                await asyncio.sleep(drawn.seconds)
            case FaultKind.EMPTY | FaultKind.STALE | FaultKind.INCOMPLETE:
                self._faults.keep(drawn)
            case FaultKind.SKEW:
                self._account.clock.step(milliseconds)
                self._account.wake_all()
            case FaultKind.DELETING:
                target = _decode_target(body)
                stream = self._account.find(arn=target.stream_arn)
                stream.consumers.add_deleting(target.consumer_name or "", milliseconds)

    @staticmethod
    async def _apply_fault_after(operation: str, drawn: DrawnFault | None) -> None:
        """Apply a fault to the response on its way back."""
        if drawn is not None and drawn.kind is FaultKind.LATE:
            await asyncio.sleep(drawn.seconds)
        if drawn is not None and drawn.kind is FaultKind.LOST:
            raise ConnectionAbortedError(operation)

    def _throttled(self, operation: str, body: bytes) -> ApiError:
        if operation in QUEUES:
            return ApiError("ThrottlingException", "Rate exceeded: injected.")
        if operation not in ("GetRecords", "PutRecord", "PutRecords"):
            return limit_exceeded("Rate exceeded: injected.")
        if operation == "GetRecords":
            self._throttled_until[self._target(body)] = self._account.clock.now_ms() + THROTTLE_MS
        return throughput_exceeded("Rate exceeded: injected.")

    def _check_throttled(self, operation: str, body: bytes) -> None:
        if operation == "GetRecords" and self._throttled_until:
            until = self._throttled_until.get(self._target(body), 0)
            if self._account.clock.now_ms() < until:
                raise throughput_exceeded("Rate exceeded: reads are refused for the rest of the second.")

    def _target(self, body: bytes) -> str:
        """Return the shard or the consumer that a request names, or "" if it names neither."""
        try:
            target = _decode_target(body)
        except UNDECODABLE:
            return ""
        if target.shard_iterator is not None:
            iterator = self._account.tokens.open(target.shard_iterator, ShardIterator)
            return iterator.shard_id if iterator is not None else ""
        return target.shard_id or target.consumer_name or ""
