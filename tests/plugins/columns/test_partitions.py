"""Rows by partition: times are cut in UTC, a field as it is, and what has no value has a folder of its own."""

import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import recordpublisher as rp
from recordpublisher.plugins.columns.partitions import Partitions
from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA

HOUR = 3_600_000_000
SCHEMA = pa.schema(
    [("eventTime", pa.timestamp("us", "UTC")), ("country", pa.string()), ("n", pa.int64()), ("price", pa.float64())]
)


def rows(*pairs):
    times, countries = zip(*pairs, strict=True)
    numbers = list(range(len(pairs)))
    return pa.record_batch([list(times), list(countries), numbers, [0.5 for _ in numbers]], schema=SCHEMA)


def split(pattern, *pairs):
    return [(part.folder, part.rows["n"].to_pylist()) for part in Partitions(pattern).split(rows(*pairs))]


def test_without_a_pattern_all_rows_are_together():
    assert split(None, (0, "CH"), (HOUR, "DE")) == [("", [0, 1])]


def test_a_time_is_cut_to_the_parts_of_its_format():
    pattern = "dt={eventTime:%Y-%m-%d}/hour={eventTime:%H}"
    assert split(pattern, (0, "a"), (HOUR, "b"), (HOUR - 1, "c"), (-1, "d")) == [
        ("dt=1970-01-01/hour=00", [0, 2]),
        ("dt=1970-01-01/hour=01", [1]),
        ("dt=1969-12-31/hour=23", [3]),
    ]
    assert split("dt={eventTime:%Y-%m}", (0, "a"), (31 * 24 * HOUR, "b")) == [("dt=1970-01", [0]), ("dt=1970-02", [1])]


def test_a_field_is_one_folder_for_each_value_and_cannot_leave_it():
    assert split("country={country}", (0, "CH"), (0, "../x"), (0, "CH")) == [
        ("country=CH", [0, 2]),
        ("country=..%2Fx", [1]),
    ]


@pytest.mark.parametrize(
    "time", ["0001-01-01T00:00:00", "0999-05-05T23:59:59", "9999-12-31T00:00:00", "9999-12-31T23:59:59.999999"]
)
@pytest.mark.parametrize("unit", ["us", "ms"])
def test_every_time_that_python_can_hold_has_its_name_with_four_digits_of_the_year(time, unit):
    times = pa.array([datetime.fromisoformat(time).replace(tzinfo=UTC)], pa.timestamp("us", "UTC"))
    row = pa.record_batch({"at": times.cast(pa.timestamp(unit, "UTC"), safe=False)})
    (partition,) = Partitions("dt={at:%Y-%m-%d}/hour={at:%H}/year={at:%Y}").split(row)
    assert partition.folder == f"dt={time[:10]}/hour={time[11:13]}/year={time[:4]}"


@pytest.mark.parametrize("time", [None, 2**62, -(2**62)])
def test_rows_without_a_value_are_together_as_in_hive(time):
    assert split("dt={eventTime:%Y}", (time, "CH"), (0, "CH")) == [
        ("dt=__HIVE_DEFAULT_PARTITION__", [0]),
        ("dt=1970", [1]),
    ]


@pytest.mark.parametrize(
    ("value", "is_valid"),
    [
        ("k" * 247, True),
        ("k" * 248, False),
        ("ü" * 123, True),
        ("ü" * 124, False),
        ("/" * 82, True),
        ("/" * 83, False),
        ("", True),
        (None, True),
    ],
)
def test_the_name_of_a_folder_has_at_most_so_many_bytes_when_it_is_escaped(value, is_valid):
    partitions, row = Partitions("country={country}"), rows((0, value), (0, "CH"))
    if is_valid:
        partitions.check_values(row, longest=255, together=600)
        return
    with pytest.raises(
        ValueError, match=r"'country' is too long for flink.sink.partitions: .* has 25\d bytes, at most 255 are valid"
    ):
        partitions.check_values(row, longest=255, together=600)


def test_all_folders_together_have_at_most_so_many_bytes():
    partitions, row = Partitions("dt={eventTime:%Y}/country={country}"), rows((0, "k" * 100))
    partitions.check_values(row, longest=255, together=116)
    with pytest.raises(ValueError, match="has 116 bytes, at most 115 are valid"):
        partitions.check_values(row, longest=255, together=115)


@pytest.mark.parametrize(
    "pattern", ["dt", "dt={eventTime:%S}", "n={n}/n={n}", "{n}", "n={n}//country={country}", "dt={eventTime:}"]
)
def test_another_pattern_is_refused_in_a_sentence(pattern):
    with pytest.raises(rp.ConfigurationError, match=r"is not name=\{time"):
        Partitions(pattern)


def test_a_folder_with_another_name_than_its_field_is_told_with_the_name():
    with pytest.raises(rp.ConfigurationError, match=r"must have the field's name: country=\{country\}"):
        Partitions("c={country}")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("dt={country:%Y}", "'country' has the type string; it must be a time: eventTime. Valid"),
        ("dt={missing:%Y}", "'missing' is not a column; it must be a time: eventTime. Valid"),
        (
            "missing={missing}",
            "'missing' is not a column; it must be a text, a whole number, a boolean or a date: country, n.",
        ),
        (
            "price={price}",
            "'price' has the type double; it must be a text, a whole number, a boolean or a date: country, n.",
        ),
        ("n={eventTime:%Y}", "the rows have a column 'n'"),
    ],
)
def test_a_column_that_cannot_be_cut_is_named_with_those_that_can(pattern, words):
    with pytest.raises(rp.ConfigurationError, match=re.escape(words)):
        Partitions(pattern).check(SCHEMA)
    Partitions("dt={eventTime:%Y}/country={country}/n={n}").check(SCHEMA)


def test_a_field_of_a_payload_without_columns_is_refused_with_the_property_that_makes_columns():
    with pytest.raises(
        rp.ConfigurationError, match=r"'address.country' is not a column.*flink\.deserializer\.schema, such as INFER"
    ):
        Partitions("country={address.country}").check(RECORD_SCHEMA)


NESTED = pa.schema(
    [
        ("id", pa.int64()),
        (
            "address",
            pa.struct([("country", pa.string()), ("zip", pa.struct([("code", pa.int32()), ("at", SCHEMA.types[0])]))]),
        ),
    ]
)


def test_a_field_inside_objects_is_a_partition_and_null_where_one_of_them_is():
    values = [
        {"country": "NO", "zip": {"code": 1, "at": 0}},
        {"country": "NO", "zip": None},
        None,
        {"country": "", "zip": {"code": 1, "at": HOUR}},
    ]
    given = pa.record_batch([list(range(4)), values], schema=NESTED)

    found = Partitions("country={address.country}/code={address.zip.code}/hour={address.zip.at:%H}").split(given)

    null = "__HIVE_DEFAULT_PARTITION__"
    assert [(part.folder, part.rows["id"].to_pylist()) for part in found] == [
        ("country=NO/code=1/hour=00", [0]),
        (f"country=NO/code={null}/hour={null}", [1]),
        (f"country={null}/code={null}/hour={null}", [2]),
        (f"country={null}/code=1/hour=01", [3]),
    ]


def test_a_long_text_inside_an_object_is_refused_as_any_other():
    given = pa.record_batch([[1], [{"country": "k" * 248, "zip": None}]], schema=NESTED)

    with pytest.raises(ValueError, match="'country' is too long"):
        Partitions("country={address.country}").check_values(given, 255, 3_000)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (
            "country={address.missing}",
            "'address.missing' is not a column; it must be.*: id, address.country, address.zip.code",
        ),
        ("zip={address.zip}", "'address.zip' has the type struct"),
        ("id={address.country}", "the rows have a column 'id'"),
        ("hour={address.country:%H}", "'address.country' has the type string; it must be a time: address.zip.at"),
    ],
)
def test_a_path_that_rows_cannot_be_partitioned_by_is_refused_with_those_they_can(pattern, reason):
    with pytest.raises(rp.ConfigurationError, match=reason):
        Partitions(pattern).check(NESTED)
