"""`rp.lambda_handler`: events as AWS documents them; nothing that is not handled is reported as done."""

import asyncio
import base64
import contextlib
import gzip
import json
import os
import signal
import threading
import time
import tracemalloc
from dataclasses import dataclass

import pytest

import recordpublisher as rp
from recordpublisher.publishers.errors import TransientError

from servers.kpl_aggregates import aggregate


@dataclass
class Order:
    number: int


MIB = 2**20
ARN = "arn:aws:kinesis:us-east-2:123456789012:stream/orders"


def number_of(index):
    return str(49590338271490256608559692538361571095921575989136588898 + index)


def kinesis_record(index, data, key="1", shard="shardId-000000000006"):
    """A record as in Lambda's developer guide."""
    return {
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": key,
            "sequenceNumber": number_of(index),
            "data": base64.b64encode(data).decode(),
            "approximateArrivalTimestamp": 1545084650.987,
        },
        "eventSource": "aws:kinesis",
        "eventVersion": "1.0",
        "eventID": f"{shard}:{number_of(index)}",
        "eventName": "aws:kinesis:record",
        "invokeIdentityArn": "arn:aws:iam::123456789012:role/lambda-role",
        "awsRegion": "us-east-2",
        "eventSourceARN": ARN,
    }


def event(*payloads, **more):
    return {"Records": [kinesis_record(index, data, **more) for index, data in enumerate(payloads)]}


def failures(*indices):
    return {"batchItemFailures": [{"itemIdentifier": number_of(index)} for index in indices]}


class Context:
    def __init__(self, milliseconds):
        self.milliseconds = milliseconds

    def get_remaining_time_in_millis(self):
        return self.milliseconds


def test_a_record_that_came_through_a_registered_consumer_names_its_stream():
    streams = []
    record = {**kinesis_record(0, b"0"), "eventSourceARN": f"{ARN}/consumer/mine:1545084650"}
    rp.lambda_handler(lambda record: streams.append(record.stream))({"Records": [record]}, None)
    assert streams == ["orders"]


def test_each_record_is_handled_and_none_is_reported():
    seen = []

    async def handle(record: rp.Record):
        seen.append(record)

    assert rp.lambda_handler(handle)(event(b"Hello", b"World"), Context(30_000)) == failures()
    assert [(r.stream, r.shard_id, r.data, r.arrival_millis) for r in seen] == [
        ("orders", "shardId-000000000006", b"Hello", 1545084650987),
        ("orders", "shardId-000000000006", b"World", 1545084650987),
    ]


def test_values_have_their_type():
    seen = []

    def handle(order: Order):
        seen.append(order)

    function = rp.lambda_handler(handle, deserializer=Order)

    assert function(event(b'{"number": 1}', b'{"number": 2}')) == failures()
    assert seen == [Order(1), Order(2)]


def test_a_handler_of_values_that_no_deserializer_makes_is_refused():
    def handle(order: Order):
        pass

    with pytest.raises(rp.ConfigurationError, match=r"'handler' is .*: the deserializer makes bytes"):
        rp.lambda_handler(handle)


def failing_on(*bad):
    async def handle(record):
        if record.data in bad:
            raise ValueError(record.data)

    return handle


def test_the_first_record_that_fails_is_reported():
    function = rp.lambda_handler(failing_on(b"2"), retries=0)

    assert function(event(b"0", b"1", b"2", b"3")) == failures(2)


def test_what_is_before_a_record_that_failed_and_was_not_handled_is_reported():
    async def handle(record):
        if record.data == b"1":
            raise ValueError
        await asyncio.sleep(30)

    records = [kinesis_record(0, b"0", key="a"), kinesis_record(1, b"1", key="b")]

    assert rp.lambda_handler(handle, retries=0)({"Records": records}) == failures(0)


def test_with_skip_a_record_that_fails_is_passed_over():
    function = rp.lambda_handler(failing_on(b"1"), retries=0, on_failure="SKIP")

    assert function(event(b"0", b"1", b"2")) == failures()


def test_a_record_that_cannot_be_decoded_is_reported_after_those_before_it():
    seen = []
    function = rp.lambda_handler(seen.append, deserializer=Order)

    assert function(event(b'{"number": 1}', b"{", b'{"number": 3}')) == failures(1)
    assert [record.value for record in seen] == [Order(1)]


def test_a_record_that_cannot_be_decoded_can_be_skipped():
    seen = []
    function = rp.lambda_handler(seen.append, {"flink.deserializer.error": "SKIP"}, deserializer=Order)

    assert function(event(b'{"number": 1}', b"{", b'{"number": 3}')) == failures()
    assert len(seen) == 2


def test_an_aggregate_is_taken_apart_and_comes_again_as_a_whole():
    seen = []

    def handle(record):
        seen.append(record.data)
        if record.data == b"b":
            raise ValueError

    function = rp.lambda_handler(handle, retries=0, ordering="PER_SHARD")
    payload = aggregate(("k", b"a"), ("k", b"b"), ("k", b"c"))

    assert function(event(b"plain", payload, b"last")) == failures(1)
    assert seen == [b"plain", b"a", b"b"]


def test_shards_of_one_event_are_reported_apart():
    records = [kinesis_record(index, b"%d" % index, shard=f"shardId-00000000000{index % 2}") for index in range(4)]
    function = rp.lambda_handler(failing_on(b"1", b"2"), retries=0)

    assert function({"Records": records}) == failures(2, 1)


def test_before_the_time_is_up_the_rest_is_reported():
    async def handle(record):
        if record.data == b"1":
            await asyncio.sleep(30)

    began = time.monotonic()

    assert rp.lambda_handler(handle)(event(b"0", b"1", b"2"), Context(1_200)) == failures(1)
    assert time.monotonic() - began < 20


class WaitingForASchema:
    """A deserializer whose registry does not answer for the second batch."""

    def __init__(self):
        self.batches = 0

    async def prepare(self, batch):
        self.batches += 1
        if self.batches == 2:
            await asyncio.sleep(30)

    def values(self, batch):
        return batch.data


@pytest.mark.slow
def test_what_was_not_written_before_the_time_was_up_is_reported_too():
    many = aggregate(*[("k", b"")] * 5_000)  # three of them are two batches

    async def handle(record: rp.Record):
        pass

    function = rp.lambda_handler(handle, deserializer=WaitingForASchema())

    assert function(event(b"first", many, many, many), Context(6_000)) == failures(3)


def test_an_event_of_which_nothing_could_be_written_is_reported():
    deserializer = WaitingForASchema()
    deserializer.batches = 1

    assert rp.lambda_handler(print, deserializer=deserializer)(event(b"0", b"1"), Context(1_200)) == failures(0)


def test_handlers_keep_their_loop_between_calls():
    loops = set()

    async def handle(record):
        loops.add(asyncio.get_running_loop())

    function = rp.lambda_handler(handle)
    function(event(b"1"))
    function(event(b"2"))

    assert len(loops) == 1


def test_a_change_of_a_table_is_a_record():
    seen = []
    change = {
        "eventID": "c4ca4238a0b923820dcc509a6f75849b",
        "eventName": "INSERT",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "Keys": {"Id": {"N": "101"}},
            "NewImage": {"Message": {"S": "New item!"}, "Id": {"N": "101"}},
            "ApproximateCreationDateTime": 1428537600,
            "SequenceNumber": "4421584500000000017450439091",
            "SizeBytes": 26,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2024-06-10T19:26:16.525",
    }

    assert rp.lambda_handler(seen.append, deserializer="json")({"Records": [change]}) == failures()
    (record,) = seen
    assert (record.stream, record.value["eventName"], record.partition_key) == (
        "orders",
        "INSERT",
        '{"Id": {"N": "101"}}',
    )
    assert json.loads(record.data)["dynamodb"]["NewImage"] == change["dynamodb"]["NewImage"]


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        {"Records": None},
        {"Records": [{}]},
        {"Records": [{"eventSource": "aws:sqs", "body": "{}"}]},
        "text",
        {"Records": ["text"]},
    ],
)
def test_another_event_is_refused(wrong):
    with pytest.raises(rp.ConfigurationError, match="the event of a Kinesis or DynamoDB Streams event source mapping"):
        rp.lambda_handler(print)(wrong)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_failure": "DEAD_LETTER"}, "the event source mapping has an on-failure destination"),
        ({"concurrency": 0}, "concurrency"),
        ({"properties": {"flink.deserializer": "xml"}}, "flink.deserializer"),
    ],
)
def test_wrong_arguments_are_refused_before_the_first_event(options, words):
    with pytest.raises(rp.ConfigurationError, match=words):
        rp.lambda_handler(print, **options)


def test_what_it_returns_is_no_handler_of_records():
    made = rp.lambda_handler(print)
    with pytest.raises(
        rp.ConfigurationError, match=r"takes events. Valid: the function that was given to rp.lambda_handler"
    ):
        rp.MapSink(made)


def test_compressed_records_are_decompressed_in_parts():  # P6
    handled = []
    payload = gzip.compress(bytes(8 * MIB))
    settings = {"flink.deserializer.compression": "GZIP"}
    function = rp.lambda_handler(lambda record: handled.append(len(record.data)), settings, max_bytes=MIB)
    tracemalloc.start()
    try:
        assert function(event(*[payload] * 12), Context(60_000)) == failures()
        assert tracemalloc.get_traced_memory()[1] < 48 * MIB
    finally:
        tracemalloc.stop()
    assert handled == [8 * MIB] * 12


def test_what_comes_before_a_record_that_cannot_be_decoded_is_handled_in_every_part():
    handled = []
    payloads = [gzip.compress(b'"%s"' % (b"x" * 3 * MIB)) for _ in range(4)]
    payloads.append(gzip.compress(b"no JSON"))

    def handle(record):
        handled.append(record.sequence_number)

    settings = {"flink.deserializer.compression": "GZIP", "flink.deserializer": "json"}
    assert rp.lambda_handler(handle, settings, ordering="PER_SHARD")(event(*payloads), Context(60_000)) == failures(4)
    assert handled == [number_of(index) for index in range(4)]


def test_a_handler_that_raises_a_keyboard_interrupt_fails_its_record_only():
    async def handle(record: rp.Record):
        if record.data == b"end":
            raise KeyboardInterrupt

    function = rp.lambda_handler(handle, retries=0)

    assert function(event(b"0", b"end")) == failures(1)
    assert function(event(b"1")) == failures()


def test_a_handler_that_ignores_its_cancellation_does_not_outlive_the_functions_time(caplog):
    over = asyncio.Event()

    async def handle(record: rp.Record):
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()

    assert rp.lambda_handler(handle)(event(b"1"), Context(1_050)) == failures(0)
    assert "a handler still runs after its cancellation" in caplog.text


def test_a_forked_process_has_a_loop_of_its_own():
    function = rp.lambda_handler(handle_nothing)
    assert function(event(b"1")) == failures()

    child = os.fork()
    if not child:
        os._exit(0 if function(event(b"1")) == failures() else 1)
    assert ended_in_time(child) == 0


async def handle_nothing(record: rp.Record):
    pass


def ended_in_time(child):
    """The exit code of a child process; a child that hangs is killed."""
    for _ in range(1_000):
        number, status = os.waitpid(child, os.WNOHANG)
        if number:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_tumbling_window_is_refused_by_its_name():
    given = {**event(b"1"), "window": {"start": "2020-12-09T07:04:00Z"}, "state": {"1": 2}}

    with pytest.raises(rp.ConfigurationError, match="TumblingWindowInSeconds"):
        rp.lambda_handler(handle_nothing)(given)


def test_an_interruption_of_the_caller_cancels_the_handlers():
    cancelled, caller = [], threading.get_ident()

    async def handle(record: rp.Record):
        try:
            signal.pthread_kill(caller, signal.SIGINT)
            await asyncio.sleep(3600)
        finally:
            cancelled.append(True)

    with pytest.raises(KeyboardInterrupt):
        rp.lambda_handler(handle)(event(b"1"))
    assert cancelled == [True]


def test_a_function_that_has_a_second_in_all_handles_what_it_can():
    async def handle(record):
        await asyncio.sleep(0.05)

    assert rp.lambda_handler(handle)(event(b"0", b"1"), Context(1_000)) == failures()


def test_a_time_out_of_a_deserializer_is_not_told_as_the_end_of_the_functions_time(caplog):
    class Silent:
        async def prepare(self, batch):
            raise TimeoutError("the registry did not answer")

        def values(self, batch):
            return batch.data

    with pytest.raises(TimeoutError, match="the registry did not answer"):
        rp.lambda_handler(print, deserializer=Silent())(event(b"0"), Context(30_000))
    assert "the function's time" not in caplog.text


def decode_with_a_service(record):
    if record.data == b"bad":
        raise ValueError("bad")
    if record.data == b"needs the service":
        raise TransientError("the service is away")
    return record.data


def test_while_a_service_is_away_bad_records_are_skipped_and_the_good_ones_handled():
    """The error of the skipped record was raised while that of the service was handled, so it counted as one of the service."""
    handled = []
    function = rp.lambda_handler(
        lambda record: handled.append(record.value),
        {"flink.deserializer.error": "SKIP"},
        deserializer=decode_with_a_service,
    )

    assert function(event(b"bad", b"good", b"needs the service", b"later"), None) == failures(2)
    assert handled == [b"good"]


def test_a_record_after_a_skipped_one_is_handled_once_while_a_service_is_away():
    handled = []
    payloads = gzip.compress(b"bad"), gzip.compress(b"good"), b"not compressed", gzip.compress(b"needs the service")
    given = {"flink.deserializer.compression": "GZIP", "flink.deserializer.error": "SKIP"}
    function = rp.lambda_handler(lambda record: handled.append(record.value), given, deserializer=decode_with_a_service)

    assert function(event(*payloads), None) == failures(3)
    assert handled == [b"good"]
