"""Timestamp assigners: arrival, a field, a user's function."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from recordpublisher.consumer.event_time import (
    ArrivalTimestamps,
    FieldTimestamps,
    FunctionTimestamps,
    ImplausibleTimes,
    check_times,
    timestamp_assigner_for,
)
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.job_properties import FUTURE_LIMIT
from recordpublisher.publishers.properties.properties import Properties

from fakes.batches import batch

FIELD = {"flink.watermark.timestamp.field": "at"}


def test_arrival_is_the_default():
    assert isinstance(timestamp_assigner_for(Properties(), None), ArrivalTimestamps)
    assert ArrivalTimestamps().timestamps(batch(b"a")) == [1_700_000_000_500]


def test_a_users_function_wins_over_the_field():
    made = timestamp_assigner_for(Properties(FIELD), lambda record: len(record.data))

    assert isinstance(made, FunctionTimestamps)
    assert made.timestamps(batch(b"abc", b"")) == [3, 0]


@pytest.mark.parametrize(("function", "times"), [(None, [5]), (lambda record: 7, None)])
def test_only_a_field_gives_the_times_of_payloads_alone(function, times):
    times_in = timestamp_assigner_for(Properties(FIELD), function).times_in
    assert (times_in and times_in([b'{"at": 5}'])) == times
    assert timestamp_assigner_for(Properties(), None).times_in is None


@pytest.mark.parametrize(
    ("document", "millis"),
    [
        (b'{"at": 1700000000123}', 1_700_000_000_123),
        (b'{"at": -5}', -5),
        (b'{"at": 12.6}', 13),
        (b'{"at": "2023-11-14T22:13:20.5Z"}', 1_700_000_000_500),
        (b'{"at": "2023-11-14T22:13:20"}', 1_700_000_000_000),
        (b'{"at": "2023-11-14T23:13:20+01:00"}', 1_700_000_000_000),
        (b'{"at": "9999-12-31T23:59:59.999999Z"}', 253_402_300_799_999),
        (b'{"at": "1969-12-31T23:59:59.9996Z"}', -1),
        (b'{"at": "0001-01-01T00:00:00.0004Z"}', -62_135_596_800_000),
        (b'{"other": {"at": 1}, "at": 2}', 2),
    ],
)
def test_a_field_is_epoch_ms_or_iso_8601(document, millis):
    assert timestamp_assigner_for(Properties(FIELD), None).timestamps(batch(document)) == [millis]


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"{}", b'{"at": null}', b'{"at": true}', b'{"at": "soon"}', b'{"at": 1e999}', b"\xff"]
)
def test_a_record_without_a_time_raises_an_error_with_the_field(document):
    with pytest.raises(ValueError, match=r"field 'at' \(flink.watermark.timestamp.field\)"):
        FieldTimestamps("at").timestamps(batch(document))


@dataclass
class Order:
    at: object


def message():
    """Return a message of Protocol Buffers with a field `at` of the type Timestamp, which is not set."""
    file = FileDescriptorProto(name="event_time.proto", package="event_time", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="M").field.add(
        name="at", number=1, type="TYPE_MESSAGE", label="LABEL_OPTIONAL", type_name=".google.protobuf.Timestamp"
    )
    pool = DescriptorPool()
    for each in (Timestamp.DESCRIPTOR.file.serialized_pb, file.SerializeToString()):
        pool.AddSerializedFile(each)
    return GetMessageClass(pool.FindMessageTypeByName("event_time.M"))()


def struct(**fields):
    """Return a Struct of Protocol Buffers, which is a mapping without the method `get`."""
    made = Struct()
    made.update(fields)
    return made


@pytest.mark.parametrize(
    "value",
    [
        {"at": 1_700_000_000_500},
        Order(1_700_000_000_500.4),
        Order("2023-11-14T22:13:20.5Z"),
        Order(datetime(2023, 11, 14, 22, 13, 20, 500_999, tzinfo=UTC)),
        Order(datetime(2023, 11, 14, 22, 13, 20, 500_999)),
        Order(Timestamp(seconds=1_700_000_000, nanos=500_999_999)),
        Order(Decimal("1700000000500")),
        struct(at=1_700_000_000_500),
        Order(Fraction(1_700_000_000_500)),
    ],
)
@pytest.mark.parametrize(
    "payload", [b"\x01\x02", b"{\x02", b"", b"7", b"{}\x02", b'{"at": "soon"}\n{}', b'{"at": 1} rest']
)
def test_the_field_of_the_decoded_value_counts_if_the_payload_is_not_json(payload, value):
    decoded = batch(payload, b'{"at": 3}').with_columns(values=[value, {"at": 4}])
    assert FieldTimestamps("at").timestamps(decoded) == [1_700_000_000_500, 3]


@pytest.mark.parametrize("payload", [b"{}", b'{"at": "soon"}', b' {"at": null}'])
def test_a_json_object_without_a_time_is_bad_even_if_the_decoded_value_has_a_default(payload):
    with pytest.raises(ValueError, match=r"no event time in field 'at' \(flink.watermark.timestamp.field\)"):
        FieldTimestamps("at").timestamps(batch(payload).with_columns(values=[Order(5)]))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("text", r"the payload is not a JSON object, and its decoded value \(str\) has no such field"),
        (Order(None), "None is not a time"),
        (Order(True), "True is not a time"),
        (Order(float("nan")), "NaN"),
        (Order("soon"), "Invalid isoformat"),
        (Order(Duration(seconds=3)), r"seconds: 3\s+is not a time"),
        (struct(other=5), r"its decoded value \(Struct\) has no such field"),
        (message(), r"its decoded value \(M\) has no such field"),
    ],
)
def test_a_decoded_value_without_a_time_raises_an_error_with_the_reason(value, reason):
    with pytest.raises(
        ValueError, match=rf"no event time in field 'at' \(flink.watermark.timestamp.field\): .*{reason}"
    ):
        FieldTimestamps("at").timestamps(batch(b"\x01").with_columns(values=[value]))


def test_a_function_that_returns_no_number_raises_an_error():
    with pytest.raises(TypeError):
        FunctionTimestamps(lambda record: None).timestamps(batch(b"a"))


@pytest.mark.parametrize("field", ["\x00", 'quo"te', "back\\slash"])
def test_a_field_name_that_the_decoder_cannot_match_is_a_configuration_error(field):
    with pytest.raises(ConfigurationError, match=r"flink\.watermark\.timestamp\.field"):
        timestamp_assigner_for(Properties({"flink.watermark.timestamp.field": field}), None)


@pytest.mark.parametrize("times", [[-62_135_596_800_000], [253_402_300_799_999], [0, 5]])
def test_w12_the_years_1_to_9999_are_valid(times):
    check_times(times)


@pytest.mark.parametrize(
    "time", [-62_135_596_800_001, 253_402_300_800_000, 2**63, -(2**63), 10**300, 10**5000], ids=int.bit_length
)
def test_w12_a_time_outside_the_years_1_to_9999_raises(time):
    with pytest.raises(ValueError, match="outside the years 1 to 9999"):
        check_times([0, time, 1])


def test_seconds_in_place_of_ms_are_told_once_with_what_they_were_read_as(caplog):
    times = ImplausibleTimes(3_600_000)
    for _ in range(3):
        times.look_at(batch(b"a", b"b"), [1_700_000_000_000, 1_700_000_000])
    assert [line.getMessage() for line in caplog.records] == [
        "the event time of record 2 of orders/shardId-0 was read as 1970-01-20T16:13:20.000+00:00: 1700000000 ms since 1970; "
        "a number is read as epoch ms; if this one is in seconds, multiply it by 1000"
    ]


@pytest.mark.parametrize(
    ("limit", "ahead", "told"),
    [
        (3_600_000, 3_600_000, None),
        (
            3_600_000,
            3_600_001,
            "more than 60 min after the record's arrival, so it counts as the arrival time for watermarks",
        ),
        (-1, 86_400_000, None),
        (-1, 86_400_001, "more than 24 h after the record's arrival, and moves the watermark as far"),
    ],
)
def test_a_time_too_far_after_its_arrival_is_told_with_what_it_does_to_watermarks(caplog, limit, ahead, told):
    arrived = batch(b"a")
    ImplausibleTimes(limit).look_at(arrived, [arrived.arrival_millis[0] + ahead])
    assert [told in message and FUTURE_LIMIT.key in message for message in caplog.messages] == [True] * bool(told)


def test_a_time_is_compared_with_the_arrival_of_its_own_record(caplog):
    first, second = batch(b"a", b"b").records
    later = msgspec.structs.replace(second, arrival=second.arrival + 7_200)
    two_hours = replace(batch(b"a", b"b"), records=[first, later])
    times = list(two_hours.arrival_millis)
    ImplausibleTimes(3_600_000).look_at(two_hours, times)
    assert times[1] - times[0] == 7_200_000
    assert not caplog.messages


def test_a_text_of_digits_is_epoch_ms():
    assert FieldTimestamps("at").timestamps(batch(b'{"at": "1790000000000"}')) == [1_790_000_000_000]
