"""`rp.lambda_handler`: runs the handler of `MapSink` as a function of AWS Lambda."""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Unpack

from recordpublisher.consumer.deserialization import DeserializerArgument
from recordpublisher.consumer.shard_consumer import BatchDecorator
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import SinkContext, Traced
from recordpublisher.plugins.host.build_from_properties import check_properties
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.sinks.map import MapSink
from recordpublisher.plugins.sinks.map.handler import LAMBDA_MARK
from recordpublisher.plugins.sinks.map.map_sink import MapOptions
from recordpublisher.plugins.tracing.trace_context import traced_calls
from recordpublisher.publishers.aggregation.deaggregation import Deaggregator
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError, DeserializationError, SinkError
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.log_fields import log_extra
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.job_properties import ON_BAD_RECORD
from recordpublisher.publishers.records import Record, RecordBatch, UserRecord, V
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import ConsumerArn, Shard, stream_name

from .argument_checks import batch_decorator_factory, checked_properties, chosen_deserializer, value_type_made_by
from .background_loop import BackgroundLoop
from .stop_signals import SHORT_ERRORS

log = logging.getLogger("recordpublisher.lambda")
VALID = "the event of a Kinesis or DynamoDB Streams event source mapping"
_DYNAMODB_SHARD = "lambda"
"""The shard id of changes of a table, because Lambda does not report their shard."""
HandlerArgument = (
    Callable[[Record[V]], object]
    | Callable[[list[Record[V]]], object]
    | Callable[[list[V]], object]
    | Callable[[V], object]
)
"""A function of a record, or of its value. With a `batch_size` above 1 it takes a list of them."""
SPARE_SECONDS = 1.0
"""The function answers this long before its time is up (seconds). If it has less than twice this time, it answers after half of it."""


def lambda_handler(
    handler: HandlerArgument[V],
    properties: Mapping[str, object] | None = None,
    *,
    deserializer: DeserializerArgument[V] | None = None,
    **options: Unpack[MapOptions],
) -> Callable[[Any, Any], dict[str, Any]]:
    """Return a function for AWS Lambda that calls `handler` for each record of an event from Kinesis or DynamoDB Streams, like `MapSink`.

    - `handler` and `options` (`ordering`, `concurrency`, `retries`, `timeout`, `on_failure`, ...): see `MapSink`.
    - `properties` and `deserializer`: see `DataFetcher`.

    A change of a table is the same record as with `flink.stream.recordpublisher=DYNAMODB_STREAMS`.

    The function returns `{"batchItemFailures": [...]}`. If a record has failed, or if the function's time is almost up, the list has the
    first record that is not handled. Lambda then sends the shard's records again from that one on, so some records are handled twice, and
    none is lost. The event source mapping needs `FunctionResponseTypes: [ReportBatchItemFailures]`. Without it Lambda takes any answer for
    a success. In the mapping you also set what happens to a record that fails repeatedly (retries, bisecting, on-failure destination).

    Raises: ConfigurationError if an argument is invalid. The returned function raises it if an event is not from Kinesis or DynamoDB
    Streams.
    """
    with SHORT_ERRORS:
        given = checked_properties(properties, {}, lambda_handler, deserializer=deserializer)
        registry = load_registry()
        check_properties(registry, given)
        if "DEAD_LETTER" in (options.get("on_failure"), given.value(ON_BAD_RECORD)):
            reason = "the event source mapping has an on-failure destination"
            raise ConfigurationError("on_failure", "DEAD_LETTER", "FAIL or SKIP", reason=reason)
        values = chosen_deserializer(registry, given, deserializer)
        MapSink(handler, **options).check(SinkContext(value_type=value_type_made_by(values)))
        decorator_for = batch_decorator_factory(registry, given, values)
        traced = traced_calls(given, SystemClock())
    loops: list[BackgroundLoop] = []

    def function(event: Any, context: Any = None) -> dict[str, Any]:
        if not loops or not loops[0].is_alive:  # A handler has ended the loop, or the process was forked.
            # The loop is kept for later events, so that handlers keep their connections.
            loops[:] = [BackgroundLoop("rp.lambda_handler").__enter__()]
        failures = []
        for shard, records in records_by_shard(event).items():
            invocation = _Invocation(
                shard, records, decorator_for(shard, ShardMetrics()), MapSink(handler, **options), traced
            )
            number = loops[0].run(invocation.first_unhandled(_seconds_of(context)))
            failures += [{"itemIdentifier": number}] if number is not None else []
        return {"batchItemFailures": failures}

    setattr(function, LAMBDA_MARK, True)
    return function


def _seconds_of(context: Any) -> float | None:
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    if remaining is None:
        return None
    left: float = max(0.0, remaining() / 1000)
    # A function that has a second in all would otherwise handle nothing, at each of its calls.
    return left - min(SPARE_SECONDS, left / 2)


class _Invocation:
    """Handles the records of one shard in one event. Owns the position up to which they were written to the sink."""

    def __init__(
        self, shard: Shard, records: list[UserRecord], decorator: BatchDecorator, sink: MapSink[Any], traced: Traced
    ) -> None:
        self._shard = shard
        self._records = records
        self._decorator = decorator
        self._sink = sink
        self._traced = traced
        self._written: SequenceNumber | None = None

    async def first_unhandled(self, seconds: float | None) -> str | None:
        """Handle the records. Return the sequence number of the first record that is not handled, or None if all are handled."""
        handling = asyncio.ensure_future(self._handle(seconds))
        try:
            await asyncio.wait(
                [handling], timeout=None if seconds is None else seconds + min(SPARE_SECONDS, seconds) / 2
            )
        except asyncio.CancelledError:
            handling.cancel()
            await asyncio.wait([handling])
            raise
        if handling.done():
            handling.result()
        else:
            log.warning(
                "a handler still runs after its cancellation, and the function returns without it",
                extra=log_extra(self._shard.key),
            )
        return self._number_after(self._handled())

    async def _handle(self, seconds: float | None) -> None:
        limit = asyncio.timeout(seconds)
        try:
            await self._sink.open(SinkContext(traced=self._traced))
            async with limit:
                async for part in self._readable_parts():
                    if len(part):
                        await self._sink.write(part)
                    self._written = part.read_position
                await self._sink.flush()
        except TimeoutError:
            if not limit.expired():  # A deserializer has raised it, for example because its registry did not answer.
                raise
            text = "the function's time is almost up: %s"
            log.warning(text, self._sink.unfinished().reason, extra=log_extra(self._shard.key))
        except SinkError as error:
            log.warning(
                "the function failed, so Lambda sends the records again: %s", error, extra=log_extra(self._shard.key)
            )
        finally:
            with contextlib.suppress(SinkError):
                await self._sink.close()

    async def _readable_parts(self) -> AsyncIterator[RecordBatch]:
        """Yield the records up to the first one that cannot be decoded."""
        last = SequenceNumber(self._records[-1].sequence_number)
        response = ReadResponse(self._records, None)
        batches = Deaggregator(self._shard, ShardMetrics()).batches(response, last, StartingPosition.trim_horizon())
        async for batch in batches:
            await self._decorator.prepare(batch)
            done, parts = 0, self._decorator.decorated_parts(batch)
            failed: str | None = None
            try:
                while (part := next(parts, None)) is not None:
                    done += len(part) + sum(skipped.count for skipped in part.skipped)
                    yield part
                    del part  # This frees the memory of the records that were handled.
            except DeserializationError as error:
                failed = error.sequence_number
            if failed is None:
                continue
            before = batch.sequence_numbers.index(failed)
            # Not in the `except` block: there the error of a record that is skipped would seem to follow from that of the failed record.
            for part in self._decorator.decorated_parts(batch.slice(done, before)) if before > done else ():
                yield part
            return

    def _handled(self) -> SequenceNumber | None:
        """Return the position up to which every record is handled, or None if the first record is not handled."""
        if self._written is None:
            return None
        key, written = self._shard.key, ShardState(StartingPosition.trim_horizon(), self._written)
        handled = self._sink.handled({"shards": {key: written.to_json()}})["shards"].get(key)
        return None if handled is None else ShardState.from_json(handled).position

    def _number_after(self, position: SequenceNumber | None) -> str | None:
        """Return the sequence number of the first record after the position, or None if there is no such record.

        If the position is inside an aggregate, the aggregate itself is the first record.
        """
        if position is None:
            return self._records[0].sequence_number
        done = int(position.sequence) - position.is_inside_aggregate
        return next((record.sequence_number for record in self._records if int(record.sequence_number) > done), None)


# --- the events -----------------------------------------------------------------------------------------------------------------------
# Lambda's developer guide describes their form ("Process records from Amazon Kinesis Data Streams with Lambda", "Using AWS Lambda with
# Amazon DynamoDB").


def records_by_shard(event: Any) -> dict[Shard, list[UserRecord]]:
    """Return the records of each shard, in order. Raises: ConfigurationError if the event has another form, or is of a tumbling window."""
    if isinstance(event, Mapping) and "window" in event:
        reason = "the function returns no state, so Lambda would forget the content of the window"
        raise ConfigurationError("TumblingWindowInSeconds", reason=reason)
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, Sequence):
        raise ConfigurationError("event", f"{event!r:.200}", VALID)
    found: dict[Shard, list[UserRecord]] = {}
    for record in records:
        try:
            shard, made = _change(record) if record["eventSource"] == "aws:dynamodb" else _kinesis_record(record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConfigurationError("event", f"{record!r:.200}", VALID, reason=reason) from error
        found.setdefault(shard, []).append(made)
    return found


def _kinesis_record(record: Mapping[str, Any]) -> tuple[Shard, UserRecord]:
    kinesis, shard_id = record["kinesis"], record["eventID"].partition(":")[0]
    data = binascii.a2b_base64(kinesis["data"], strict_mode=True)
    number, arrival = str(int(kinesis["sequenceNumber"])), float(kinesis["approximateArrivalTimestamp"])
    made = UserRecord(data, number, arrival, kinesis.get("partitionKey"))
    source = record["eventSourceARN"]
    # A mapping may read through a registered consumer, whose ARN is then its source.
    consumer = ConsumerArn.parse(source)
    return Shard(stream_name(source) if consumer is None else consumer.stream, shard_id), made


def _change(record: Mapping[str, Any]) -> tuple[Shard, UserRecord]:
    from recordpublisher.publishers.dynamodb_streams import record_of_change

    table = record["eventSourceARN"].partition("/")[2].partition("/")[0]
    return Shard(table, _DYNAMODB_SHARD), record_of_change(dict(record))
