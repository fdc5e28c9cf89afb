"""Carries out the requests of every transport: calls the function of the operation, and writes the events of subscriptions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from inspect import get_annotations
from typing import Any, Protocol, TypeVar

import msgspec

from ..publishers.decoding_errors import UNDECODABLE
from . import event_stream
from .account import Account
from .errors import ApiError, invalid_input, limit_exceeded, not_found, throughput_exceeded
from .faults import QUEUES, DrawnFault, FaultKind
from .operations import queues, records, streams
from .operations.queues import LONG_POLLS, NOTHING_VISIBLE
from .operations.records import subscribe_to_shard
from .requests import ReceiveRequest, Request, SubscribeToShard, violations
from .shard import ShardIterator
from .subscriptions import INITIAL_RESPONSE, SendStep, Subscription

# A shard that was throttled refuses reads for the rest of a second (API reference of GetRecords).
THROTTLE_MS = 1_000
UNCHANGING_PREFIXES = ("Get", "List", "Describe", "PutRecord")
"""The beginnings of the names of operations that change nothing except records."""
HTML_PAGE = b"<html><body><h1>503 Service Unavailable</h1>No server is available to handle this request.</body></html>"

EMPTY_EVENT = event_stream.event("SubscribeToShardEvent", b'{"Records":[],"MillisBehindLatest":0}')

R = TypeVar("R", bound=Request)
Operation = Callable[[Account, bytes], bytes]
WRONG_TYPE = re.compile(r"Expected `[^`]+`, got `(?!null)")


class RequestDispatcher:
    """Carries out the requests of all transports, with their faults. Owns the time until which each throttled shard refuses reads."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._faults = account.faults
        self._throttled_until: dict[str, int] = {}

    async def call(self, operation: str, body: bytes) -> bytes:
        """Carry out an operation, and return the body of the response.

        Raises: ApiError if the response is an error; HtmlPageError if a fault replaces it by an HTML page; ConnectionAbortedError if a
        fault breaks the connection.
        """
        drawn = await self._apply_fault_before(operation, body)
        try:
            response = OPERATIONS[operation](self._account, body)
        finally:
            # A call that fails before it takes its fault must not leave the fault to the next call, which may be of another shard.
            self._faults.drop_kept()
        if response == NOTHING_VISIBLE and operation in LONG_POLLS:
            response = await self._poll(operation, body)
        if not operation.startswith(UNCHANGING_PREFIXES):
            self._account.report_change()
        if drawn is None:
            self._faults.on_success(operation, lambda: self._target(body))
        await self._apply_fault_after(operation, drawn)
        return response[: len(response) // 2] if drawn is not None and drawn.kind is FaultKind.HALF else response

    async def _poll(self, operation: str, body: bytes) -> bytes:
        """Repeat a call until its queue has records that can be received, or until WaitTimeSeconds have passed."""
        request, clock, response = _decode_receive(body), self._account.clock, NOTHING_VISIBLE
        until_ms = clock.now_ms() + request.wait_time_seconds * 1000
        # This loop has a limit of its own, because the account's clock may stand still (`ManualClock`).
        now = asyncio.get_running_loop().time
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
        """Apply the fault that was planned or drawn for a call, before the call is carried out. Return the fault if it was drawn."""
        self._faults.before_call(operation)
        self._check_throttled(operation, body)
        drawn = self._faults.for_call(operation, lambda: self._target(body))
        match drawn and drawn.kind:
            case FaultKind.THROTTLE:
                raise self._throttled(operation, body)
            case FaultKind.ERROR:
                raise ApiError("InternalFailure", "injected", 500)
            case FaultKind.MISSING:
                raise not_found("injected fault: the shard exists")
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
        """Apply a random fault that does not prevent the call, such as a delay. The call is carried out afterwards."""
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
        """Delay or lose the response of a call, if a fault of such a kind was drawn for it."""
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
        """Return the shard or the consumer that a request names, or an empty text if it names neither."""
        try:
            target = _decode_target(body)
        except UNDECODABLE:
            return ""
        if target.shard_iterator is not None:
            iterator = self._account.tokens.open(target.shard_iterator, ShardIterator)
            return iterator.shard_id if iterator is not None else ""
        return target.shard_id or target.consumer_name or ""


class HtmlPageError(Exception):
    """Raised if a fault replaces the response by an HTML page, such as a proxy sends."""


class _RequestTarget(msgspec.Struct, rename="pascal"):
    """The fields with which requests name a shard or a consumer."""

    shard_id: str | None = None
    shard_iterator: str | None = None
    consumer_name: str | None = None
    stream_arn: str | None = msgspec.field(name="StreamARN", default=None)


_decode_target = msgspec.json.Decoder(_RequestTarget).decode


class ResponseStream(Protocol):
    """The open response of one SubscribeToShard call, whichever transport it uses."""

    async def start(self) -> None:
        """Send the response's head."""

    async def write(self, data: bytes) -> None:
        """Write bytes and wait until the buffer has room again. Raises: ConnectionError if the client has gone."""

    async def end(self) -> None:
        """End the response normally. The client then sees a complete response."""

    def abort(self) -> None:
        """Break the connection."""


async def write_events(
    subscription: Subscription, stream: ResponseStream, account: Account, encode: Callable[[bytes], bytes] = bytes
) -> None:
    """Write events until the subscription ends or the client has gone. `encode` converts a frame to the client's format."""
    writer = EventWriter(subscription, stream, account, encode)
    try:
        await writer.run()
    except ConnectionError:  # The client has closed the connection.
        pass
    finally:
        account.subscriptions.close(subscription)
        writer.unlisten()


class EventWriter:
    """Writes the events of one subscription to its open response."""

    def __init__(
        self, subscription: Subscription, stream: ResponseStream, account: Account, encode: Callable[[bytes], bytes]
    ) -> None:
        self._encode = encode
        self._subscription = subscription
        self._stream = stream
        self._account = account
        self._clock = account.clock
        self._faults = account.faults
        self._write_timeout_ms = account.delays.cut_stuck_reader
        self._changed = asyncio.Event()
        subscription.wake = self._changed.set
        self.unlisten = subscription.shard.log.listen(self._changed.set)

    async def run(self) -> None:
        """Write the initial response, then event after event."""
        await self._stream.start()
        await self._write(INITIAL_RESPONSE)
        names = self._subscription.consumer.name, self._subscription.shard.id
        while True:
            self._changed.clear()
            planned = self._faults.for_subscription(*names)
            if planned is not None:  # A planned fault is applied at once, even if there is nothing to send.
                await self._apply(planned.fault.value, EMPTY_EVENT, planned.code)
                return await self._stream.end()
            now = self._clock.now_ms()
            step = self._subscription.next_step(now)
            if step is None:
                return await self._stream.end()
            if not isinstance(step, SendStep):
                await self._wait((step.until_ms - now) / 1000)
                continue
            drawn = self._faults.for_frame(*names)
            if drawn is None:
                await self._write(step.frame)
            else:
                await self._apply(drawn.kind, step.frame)
            if step.last or (drawn is not None and drawn.kind is not FaultKind.CORRUPT):
                return await self._stream.end()

    async def _write(self, frame: bytes) -> None:
        """Write one frame and wait until the socket has room again, so that a slow client keeps only one frame in memory."""
        timeout_ms = self._subscription.expires_ms + self._write_timeout_ms - self._clock.now_ms()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._stream.write(self._encode(frame))
        except TimeoutError:
            self._stream.abort()
            raise ConnectionAbortedError from None

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _apply(self, kind: FaultKind, frame: bytes, code: str = "InternalFailureException") -> None:
        """Apply a fault to this frame: write what the client receives instead of the frame. For END nothing is written."""
        match kind:
            case FaultKind.CUT:
                await self._write(frame[: len(frame) // 2])
                self._stream.abort()
                raise ConnectionAbortedError
            case FaultKind.TRUNCATE:
                await self._write(frame[: len(frame) // 2])
            case FaultKind.CORRUPT:
                await self._write(event_stream.corrupted(frame))
            case FaultKind.SILENCE:
                await asyncio.Event().wait()
            case FaultKind.EVENT_ERROR:
                await self._write(event_stream.exception(code, "injected"))
            case FaultKind.TAKE_OVER:
                self._account.subscriptions.take_over(self._subscription)
                await self._write(self._error_frame())
            case FaultKind.VANISH:
                self._subscription.stream.consumers.deregister_once(self._subscription.consumer)
                self._account.subscriptions.wake_all()
                await self._write(self._error_frame())

    def _error_frame(self) -> bytes:
        step = self._subscription.next_step(self._clock.now_ms())
        return step.frame if isinstance(step, SendStep) else b""


def _operation(kind: type[R], function: Callable[[Account, R], object]) -> Operation:
    decode = body_decoder(kind)

    def run(account: Account, body: bytes) -> bytes:
        result = function(account, decode(body))
        if result is None:  # This operation has no output.
            return b""
        return result if isinstance(result, bytes) else msgspec.json.encode(result)

    return run


def body_decoder(kind: type[R]) -> Callable[[bytes], R]:
    """Return a function that decodes a request's body into a `kind`. The function raises ValidationException or SerializationException."""
    decode = msgspec.json.Decoder(kind).decode

    def checked(body: bytes) -> R:
        try:
            return decode(body or b"{}")
        except msgspec.ValidationError as error:
            if WRONG_TYPE.match(str(error)):
                raise ApiError("SerializationException", str(error)) from error
            message = violations(kind, body)
            raise (
                invalid_input(str(error)) if message is None else ApiError("ValidationException", message)
            ) from error
        except UNDECODABLE as error:
            raise ApiError("SerializationException", f"The body is not JSON: {error}") from error

    return checked


FUNCTIONS: tuple[Callable[[Account, Any], object], ...] = (
    streams.create_stream, streams.delete_stream, streams.describe_stream, streams.describe_stream_summary,
    streams.list_streams, streams.increase_stream_retention_period, streams.decrease_stream_retention_period,
    streams.update_stream_record_distribution_strategy,
    streams.list_shards, streams.split_shard, streams.merge_shards, streams.update_shard_count,
    records.put_record, records.put_records,
    records.get_shard_iterator, records.get_records,
    streams.register_stream_consumer, streams.describe_stream_consumer, streams.list_stream_consumers,
    streams.deregister_stream_consumer,
    streams.tag_resource, streams.untag_resource, streams.list_tags_for_resource, streams.add_tags_to_stream,
    streams.remove_tags_from_stream, streams.list_tags_for_stream, streams.put_resource_policy,
    streams.get_resource_policy, streams.delete_resource_policy, streams.start_stream_encryption,
    streams.stop_stream_encryption, streams.enable_enhanced_monitoring, streams.disable_enhanced_monitoring,
    streams.update_max_record_size, streams.update_stream_mode,
    streams.describe_limits,
    queues.create_queue, queues.describe_queue, queues.list_queues, queues.update_queue, queues.delete_queue,
    queues.receive_queue_records, queues.receive_dead_letter_queue_records, queues.acknowledge_queue_records,
    queues.acknowledge_dead_letter_queue_records, queues.restore_dead_letter_queue_records,
    queues.update_queue_records_visibility, queues.update_dead_letter_queue_records_visibility,
)  # fmt: skip


INPUTS: dict[str, type[Request]] = {
    function.__name__.title().replace("_", ""): get_annotations(function, eval_str=True)["request"]
    for function in FUNCTIONS
}


OPERATIONS = {
    name: _operation(kind, function) for (name, kind), function in zip(INPUTS.items(), FUNCTIONS, strict=True)
}
_decode_subscribe = body_decoder(SubscribeToShard)
_decode_receive = body_decoder(ReceiveRequest)
