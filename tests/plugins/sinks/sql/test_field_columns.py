"""Columns for the fields of values, on SQLite and PostgreSQL: from a type, from the first batch, and when a field appears later."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated

import msgspec
import pydantic
import pytest
from protobuf_order import Item as MessageItem
from protobuf_order import Order as Message
from sqlalchemy import BigInteger, Numeric, create_engine, inspect, text
from sqlalchemy.dialects import postgresql

import recordpublisher as rp
from recordpublisher.plugins.deserializers.schemas import schema_type
from recordpublisher.plugins.sinks.sql import SqlSink
from recordpublisher.plugins.sinks.sql.column_types import UNCONVERTIBLE, conversion_of
from recordpublisher.plugins.sinks.sql.target_table import why_no_column

from fakes.batches import batch
from fakes.memory_streams import PROPERTIES, install

STATE = {"version": 2, "generation": 1, "shards": {}}
METADATA = ["stream", "shard_id", "sequence_number", "sub_sequence_number", "partition_key"]
TIMES = ["approximate_arrival_timestamp", "event_time"]
AT = datetime(2026, 11, 26, 6, tzinfo=UTC)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def uri(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/job.db"
        return
    server = request.getfixturevalue("postgresql")
    query(server, "drop schema public cascade; create schema public")
    yield server


def engine_of(uri):
    return create_engine(uri.replace("postgresql://", "postgresql+psycopg://"))


def query(uri, statement):
    engine = engine_of(uri)
    with engine.begin() as connection:
        result = connection.execute(text(statement))
        rows = [tuple(row) for row in result] if result.returns_rows else []
    engine.dispose()
    return rows


def columns_of(uri, table="records"):
    engine = engine_of(uri)
    shown = {column["name"]: str(column["type"]) for column in inspect(engine).get_columns(table)}
    engine.dispose()
    return shown


async def commit(uri, *values, of=None, reject=None, **settings):
    """A start of the job that writes these values and commits them."""
    properties = {"flink.job.name": "job", "flink.sink.sql.uri": uri}
    sink = SqlSink(rp.Properties(properties, **settings))
    try:
        context = {"value_type": of} | ({} if reject is None else {"reject": reject})
        await sink.open(rp.SinkContext(**context))
        await sink.write(values_of(*values))
        await sink.flush(rp.Checkpoint(STATE))
    finally:
        await sink.close()


def values_of(*values):
    return batch(*(b"%d" % number for number in range(len(values)))).with_columns(values=list(values))


class Colour(Enum):
    RED = "red"


class Order(msgspec.Struct):
    n: int
    price: float
    paid: bool
    at: datetime
    day: date
    total: Decimal
    number: uuid.UUID
    colour: Colour
    items: list[str]
    note: str | None = None


ORDER = Order(7, 1.5, True, AT, AT.date(), Decimal("1.10"), uuid.UUID(int=7), Colour.RED, ["tea"])
FIELDS = ["n", "price", "paid", "at", "day", "total", "number", "colour", "items", "note"]


async def test_a_type_has_a_column_for_each_field(uri):
    await commit(uri, ORDER, of=Order)

    shown = columns_of(uri)
    assert list(shown) == [*METADATA, *TIMES, *FIELDS]
    assert [shown[name] for name in ("n", "note", "items")] == [
        "BIGINT",
        "TEXT",
        "JSON" if "sqlite" in uri else "JSONB",
    ]
    assert query(uri, "select n, price, colour, note from records") == [(7, 1.5, "red", None)]
    if "postgresql" in uri:
        row = query(uri, "select paid, at, day, total, number, items from records")
        assert row == [(True, AT, AT.date(), Decimal("1.10"), uuid.UUID(int=7), ["tea"])]


async def test_the_columns_of_a_type_are_there_before_the_first_record(uri):
    await commit(uri, of=Order)
    assert list(columns_of(uri))[-len(FIELDS) :] == FIELDS


def row_type(schema):
    return schema_type(rp.Properties(deserializer_schema=schema))


NARROW = row_type("s SMALLINT, n INT, x FLOAT, d DECIMAL(5, 2), same DECIMAL(9, 2)")
WIDE = row_type("s INT, n BIGINT, x DOUBLE, d DECIMAL(9, 3), same DECIMAL(5, 2)")
SMALL, LARGE = NARROW(s=1, n=2, x=0.5, d=Decimal("1.25")), WIDE(s=2**20, n=2**40, x=1e300, d=Decimal("123456.125"))


async def test_evolve_widens_the_columns_of_postgresql_and_those_of_sqlite_hold_every_number(uri):
    evolve = {"sink_sql_columns": "EVOLVE"}
    await commit(uri, SMALL, of=NARROW, **evolve)
    await commit(uri, LARGE, LARGE, of=WIDE, **evolve)  # the first one has the number of a record that is there
    await commit(uri, SMALL, SMALL, SMALL, of=NARROW, **evolve)

    rows = query(uri, "select s, n, x, cast(d as text) from records order by sequence_number")
    assert [row[:3] for row in rows] == [(1, 2, 0.5), (2**20, 2**40, 1e300), (1, 2, 0.5)]
    assert [Decimal(row[3]) for row in rows] == [Decimal("1.25"), Decimal("123456.125"), Decimal("1.25")]
    if "postgresql" in uri:
        shown = columns_of(uri)
        kinds = ["INTEGER", "BIGINT", "DOUBLE PRECISION", "NUMERIC(9, 3)", "NUMERIC(9, 2)"]
        assert [shown[name] for name in ("s", "n", "x", "d", "same")] == kinds


@pytest.mark.slow
async def test_a_column_of_its_own_table_that_is_too_narrow_is_refused_with_the_statement_to_run(postgresql):
    query(postgresql, "drop schema public cascade; create schema public")
    await commit(postgresql, SMALL, of=NARROW)
    words = (
        "column 's' of table records is narrower.*: run ALTER TABLE records ALTER COLUMN s TYPE INTEGER. Valid: EVOLVE"
    )
    with pytest.raises(rp.ConfigurationError, match=words):
        await commit(postgresql, LARGE, of=WIDE)

    query(postgresql, "drop table records; create table records (n int, s bigint)")
    await commit(postgresql, NARROW(s=1, n=2), of=WIDE)
    assert query(postgresql, "select n, s from records") == [(2, 1)]


@dataclass
class ADataclass:
    a: int
    b: dict[str, int]


class Pydantic(pydantic.BaseModel):
    a: pydantic.PositiveInt
    b: dict[str, int]


@pytest.mark.parametrize("of", [ADataclass, Pydantic])
async def test_every_class_with_fields_has_columns(uri, of):
    await commit(uri, of(a=1, b={"x": 1}), of=of)
    assert [*columns_of(uri)][-2:] == ["a", "b"]
    assert query(uri, "select a from records where b is not null") == [(1,)]


@dataclass
class WithDefaults:
    n: int
    country: str = "de"
    raw: bytes = b"\0\xff"
    colour: Colour = Colour.RED


async def test_defaults_of_a_type_are_written(uri):
    await commit(uri, msgspec.json.decode(b'{"n": 1}', type=WithDefaults), of=WithDefaults)
    assert query(uri, "select n, country, colour from records") == [(1, "de", "red")]


@pytest.mark.parametrize("is_own", [False, True])
async def test_bytes_are_bytes_in_a_new_table_and_in_ones_own(uri, is_own):
    if is_own:
        query(uri, f"create table records (n integer, raw {'blob' if 'sqlite' in uri else 'bytea'})")
    await commit(uri, WithDefaults(1), of=WithDefaults)
    assert [bytes(raw) for (raw,) in query(uri, "select raw from records")] == [b"\0\xff"]


async def test_bytes_in_a_column_of_text_stay_base64(uri):
    query(uri, "create table records (n integer, raw text)")
    await commit(uri, WithDefaults(1), of=WithDefaults)
    assert query(uri, "select raw from records") == [("AP8=",)]


async def test_a_protobuf_message_has_a_column_for_each_field(uri):
    message = Message(id=7, kind=1, items=[MessageItem(name="cup")], at=AT, took=timedelta(seconds=2))
    await commit(uri, message, of=Message)

    (row,) = query(uri, "select id, kind, items, raw, took, note from records")
    items = row[2] if isinstance(row[2], list) else json.loads(row[2])
    assert (*row[:2], items, *row[3:]) == (7, "OLD", [{"name": "cup", "kinds": []}], b"", "PT2S", None)
    assert query(uri, "select at from records where at >= '2026-11-26'")


async def test_auto_takes_the_columns_from_the_first_batch(uri):
    values = [{"n": 1, "price": 2, "x": None}, {"price": 2.5, "ok": True, "more": {"a": [1]}, "value": "v", "mixed": 1}]
    await commit(uri, *values, {"mixed": "one"}, sink_sql_columns="auto")

    assert [*columns_of(uri)] == [*METADATA, *TIMES, "n", "price", "ok", "more", "value", "mixed"]
    rows = query(uri, "select n, price, value from records order by sequence_number")
    assert rows == [(1, 2.0, None), (None, 2.5, "v"), (None, None, None)]
    if "postgresql" in uri:
        assert query(uri, "select more, mixed from records order by sequence_number") == [
            (None, None),
            ({"a": [1]}, 1),
            (None, "one"),
        ]
        assert query(uri, "select count(*) from records where more is null") == [(2,)]


async def test_values_of_avro_have_columns_of_their_kinds(uri):
    row = {"at": AT, "day": AT.date(), "total": Decimal("1.10"), "number": uuid.UUID(int=7), "raw": b"\xff"}
    await commit(uri, row, {"at": AT.replace(tzinfo=None)}, sink_sql_columns="auto")

    assert query(uri, "select raw from records order by sequence_number") == [(b"\xff",), (None,)]
    if "postgresql" in uri:
        shown = query(uri, "select at, day, total, number, raw from records order by sequence_number")
        assert shown == [tuple(row.values()), (AT, None, None, None, None)]


@pytest.mark.parametrize("settings", [{"sink_sql_columns": "auto"}, {}])
async def test_a_field_that_appears_later_is_an_error_that_names_the_statement(uri, settings):
    await commit(uri, {"n": 1}, sink_sql_columns="auto")

    with pytest.raises(rp.ConfigurationError) as raised:
        await commit(uri, {"n": 2}, {"n": 3, "Some Price": 1.5}, **settings)
    statement = 'ALTER TABLE records ADD COLUMN "Some Price" DOUBLE'
    assert f"table records has no column for field 'Some Price' of a value: run {statement}" in str(raised.value)
    assert query(uri, "select n from records") == [(1,)], "nothing of the checkpoint was written"

    query(uri, str(raised.value).partition(": run ")[2].partition(". Valid")[0])
    await commit(uri, {"n": 2}, {"n": 3, "Some Price": 1.5}, **settings)
    assert query(uri, 'select n, "Some Price" from records order by n')[1:] == [(3, 1.5)]


async def test_a_field_that_a_type_gets_later_is_told_at_the_start(uri):
    await commit(uri, ADataclass(1, {}), of=ADataclass)

    with pytest.raises(rp.ConfigurationError, match="no column for field 'n' of a value: run ALTER TABLE"):
        await commit(uri, of=Order)


async def test_evolve_adds_the_column(uri):
    await commit(uri, {"n": 1}, sink_sql_columns="evolve")
    await commit(uri, {"n": 2}, {"n": 3, "price": 1.5}, {"n": 4}, sink_sql_columns="evolve")

    shown = query(uri, "select n, price from records order by sequence_number")
    assert shown == [(1, None), (3, 1.5), (4, None)], "record 1 was there"


async def test_evolve_adds_columns_to_a_table_of_your_own(uri):
    query(uri, "create table records (n bigint)")
    await commit(uri, {"n": 1, "price": 1.5}, sink_sql_columns="evolve")
    assert query(uri, "select n, price from records") == [(1, 1.5)]


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", 5, None, pytest.param("N", id="differs in case only")])
async def test_a_record_with_a_field_that_cannot_have_a_column_is_rejected(tmp_path, name):
    rejected = []

    async def reject(record, reason):
        rejected.append(reason)

    uri = f"sqlite:///{tmp_path}/job.db"
    await commit(uri, {"n": 1, name: 1}, {"n": 2}, reject=reject, sink_sql_columns="evolve")
    assert rejected == [f"field {name!r} of its value cannot have a column of the table"]
    assert query(uri, "select n from records") == [(2,)]


@pytest.mark.parametrize(
    "given", ["NaN", " -nan ", "Infinity", float("nan"), Decimal("NaN"), Decimal("sNaN"), float("-inf")]
)
def test_a_column_of_exact_numbers_takes_no_nan_or_infinity(given):
    """PostgreSQL would store NaN, and the sum of the column would be NaN from then on."""
    with pytest.raises(UNCONVERTIBLE):
        conversion_of(Numeric(12, 2))(given)
    assert conversion_of(Numeric(12, 2))("1.50") == Decimal("1.50")


async def test_nan_in_sqlite_is_rejected(tmp_path):
    rejected = []

    async def reject(record, reason):
        rejected.append(reason)

    uri = f"sqlite:///{tmp_path}/job.db"
    values = {"x": 1.5}, {"x": float("nan")}, {"x": "NaN"}
    query(uri, "create table records (x double)")
    await commit(uri, *values, reject=reject)
    assert rejected == ["column 'x' (double) cannot take nan", "column 'x' (double) cannot take 'NaN'"]
    assert query(uri, "select x from records") == [(1.5,)]


class Amount(msgspec.Struct):
    amount: Decimal | None


@pytest.mark.parametrize("given", ["NaN", "-Infinity"])
async def test_nan_in_a_decimal_is_rejected_by_sqlite_too(tmp_path, given):
    """SQLite keeps a decimal as text, and stored the text NaN, which counts as 0 in a sum."""
    rejected = []

    async def reject(record, reason):
        rejected.append(reason)

    uri = f"sqlite:///{tmp_path}/job.db"
    values = [Amount(Decimal(number)) for number in (given, "1.50", "1E+3")]
    await commit(uri, *values, Amount(None), reject=reject, of=Amount)
    assert rejected == [f"column 'amount' (text) cannot take '{given}'"]
    assert query(uri, "select amount from records order by rowid") == [("1.50",), ("1E+3",), (None,)]


async def test_nan_as_a_decimal_of_an_object_is_rejected_by_sqlite_too(tmp_path):
    rejected = []

    async def reject(record, reason):
        rejected.append(reason)

    uri = f"sqlite:///{tmp_path}/job.db"
    await commit(uri, {"x": Decimal("1.50")}, {"x": Decimal("NaN")}, reject=reject, sink_sql_columns="EVOLVE")
    assert len(rejected) == 1
    assert query(uri, "select x from records") == [("1.50",)]


async def test_sqlite_stores_the_day_of_an_instant_in_utc(tmp_path):
    uri = f"sqlite:///{tmp_path}/job.db"
    query(uri, "create table records (day date)")
    await commit(uri, {"day": datetime(2026, 1, 1, 23, 30, tzinfo=timezone(timedelta(hours=-5)))})
    assert query(uri, "select day from records") == [("2026-01-02",)]


@pytest.mark.parametrize(
    ("name", "why"), [("é" * 32, "more than 63 bytes"), ("ctid", "system column"), ("N", ""), ("é" * 31, "")]
)
def test_names_of_columns_in_postgresql(name, why):
    reason = why_no_column(postgresql.dialect(), name, {"n"})
    assert why in reason
    assert bool(why) == bool(reason)


async def test_in_a_table_of_your_own_a_field_without_a_column_is_not_stored(uri):
    query(uri, "create table records (n bigint)")
    await commit(uri, ORDER, of=Order)
    assert query(uri, "select * from records") == [(7,)]


class Named(msgspec.Struct):
    n: int
    stream: str


async def test_a_type_with_a_field_that_has_the_name_of_the_records_own_is_refused_at_the_start(uri):
    with pytest.raises(rp.ConfigurationError, match="field 'stream' of a value has the name of a metadata column"):
        await commit(uri, of=Named)


@pytest.mark.parametrize("columns", ["auto", "evolve"])
@pytest.mark.parametrize("named", [{"n": 1, "stream": "x"}, {"n": 1, "event_time": 5}, Named(1, "x")])
async def test_a_record_with_a_field_of_the_name_of_the_records_own_is_rejected(uri, columns, named):
    """Once the table has its columns, and before."""
    rejected = []

    async def reject(record, reason):
        rejected.append(reason)

    for _ in range(2):
        await commit(uri, named, {"n": 2, "shard_id": None}, reject=reject, sink_sql_columns=columns)
        query(uri, "delete from recordpublisher_commits")
    name = "event_time" if isinstance(named, dict) and "event_time" in named else "stream"
    assert rejected == [f"field '{name}' of its value cannot have a column of the table"] * 2
    assert query(uri, "select n, stream from records") == [(2, "orders")]


NAN = float("nan")


@pytest.mark.parametrize("kind", ["text", "json"])
@pytest.mark.parametrize("bad", [{"x": NAN}, [float("inf")], NAN])
async def test_a_field_that_json_has_no_form_for_is_rejected(uri, kind, bad):
    rejected = []

    async def reject(record, reason):
        rejected.append(reason)

    query(uri, f"create table records (n bigint, x {kind})")
    await commit(uri, {"n": 1, "x": bad}, {"n": 2, "x": [1.5]}, reject=reject)
    assert rejected == [f"column 'x' ({kind}) cannot take {bad!r}"]
    assert query(uri, "select n from records") == [(2,)]


async def test_a_whole_value_that_json_has_no_form_for_is_rejected(uri):
    rejected = []

    async def reject(record, reason):
        rejected.append(reason)

    await commit(uri, {"x": [NAN]}, {"x": 2}, reject=reject)
    assert len(rejected) == 1
    assert query(uri, "select count(*) from records") == [(1,)]


def test_a_huge_decimal_for_an_integer_column_is_refused_at_once():
    with pytest.raises(ValueError, match="more digits"):
        conversion_of(BigInteger())(Decimal("1e4000000"))


async def test_a_table_that_rounds_is_told_at_the_start(uri, caplog):
    kinds = "n numeric(9,2), m numeric(9,2), a timestamp(0), b timestamp, r real, d double precision"
    query(uri, f"create table records ({kinds})")

    class Amount(msgspec.Struct):
        n: Decimal
        a: datetime
        r: float
        d: float

    await commit(uri, of=Amount)
    (told,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    begin = "table records rounds values to the types of its columns, without an error: "
    assert told == begin + (
        "'n' (numeric(9, 2): digits after about the fifteenth)"
        if "sqlite" in uri
        else "'n' (numeric(9, 2): digits after the first 2 of a fraction), "
        "'a' (timestamp: digits after the first 0 of a second's fraction), "
        "'r' (real: digits after about the seventh)"
    )


async def test_a_table_of_the_sink_rounds_nothing(uri, caplog):
    await commit(uri, ORDER, of=Order)
    await commit(uri, of=Order)
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


async def test_a_value_without_fields_is_rejected_in_a_table_of_fields(uri):
    rejected = []

    async def reject(record, reason):
        rejected.append((record.sequence_numbers, reason))

    await commit(uri, {"n": 1}, [1], {}, reject=reject, sink_sql_columns="auto")
    assert rejected == [(["2"], "no column of the table matches its value, which is of the type list")]
    assert query(uri, "select n from records order by sequence_number") == [(1,), (None,)]


async def test_a_name_that_is_too_long_is_named(uri):
    if "sqlite" in uri:
        return  # has no limit
    with pytest.raises(rp.SinkError, match=f"field '{'n' * 70}' of its value cannot have a column of the table"):
        await commit(uri, {"n" * 70: 1}, sink_sql_columns="auto")


async def test_value_is_json_that_can_be_asked_in_postgresql(uri):
    await commit(uri, {"n": 1, "at": AT}, None)

    kind = columns_of(uri)["value"]
    assert kind == ("TEXT" if "sqlite" in uri else "JSONB")
    if "postgresql" in uri:
        assert query(uri, "select value->>'n', value from records order by sequence_number") == [
            ("1", {"n": 1, "at": "2026-11-26T06:00:00Z"}),
            (None, None),
        ]


async def test_value_keeps_what_jsonb_refuses_as_text(uri):
    await commit(uri, {"a\0": ["b\0", {"c": None}], "d": "\ud800", "e": 1.5}, {"n": 1})

    if "postgresql" in uri:
        assert query(uri, "select value from records order by sequence_number") == [
            ({"a\\u0000": ["b\\u0000", {"c": None}], "d": "\\ud800", "e": 1.5},),
            ({"n": 1},),
        ]


@pytest.mark.parametrize("given", [{"deserializer": ADataclass}, {"deserializer": f"{__name__}:ADataclass"}])
async def test_the_type_is_that_of_the_jobs_deserializer(monkeypatch, tmp_path, given):
    install(monkeypatch, {"a": [b'{"a": 1, "b": {}}']})
    uri = f"sqlite:///{tmp_path}/job.db"
    async with rp.DataFetcher("orders", PROPERTIES, sink="sql", job_name="job", sink_sql_uri=uri, **given) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True)

    assert query(uri, "select a, b from records") == [(1, "{}")]


class Priced(msgspec.Struct):
    price: Annotated[Decimal, msgspec.Meta(extra={"column": "DECIMAL(5, 2)"})] | None = None
    pieces: Annotated[int, msgspec.Meta(extra={"column": "INT"})] = 1
    weight: Annotated[float, msgspec.Meta(extra={"column": "FLOAT"})] = 0.5


async def test_a_field_that_names_its_column_gets_it_and_no_number_is_rounded(uri, caplog):
    rejected = []

    async def reject(records, reason):
        rejected.append(reason)

    values = [Priced(Decimal("1.50")), Priced(Decimal("1.505")), Priced(None)]
    await commit(uri, *values, of=Priced, reject=reject)

    assert query(uri, "select price, pieces, weight from records where price is not null") == [
        ("1.50" if "sqlite" in uri else Decimal("1.50"), 1, 0.5)
    ]
    assert rejected == [f"column 'price' ({columns_of(uri)['price'].lower()}) cannot take '1.505'"]
    assert columns_of(uri)["pieces"] == "INTEGER"
    assert columns_of(uri)["weight"] == "REAL"
    assert "price" not in caplog.text


async def test_a_field_may_be_named_explicit_hash_key(uri):
    values = [{"id": 1, "value": "five", "data": "x", "explicit_hash_key": "h"}, {"id": 2}]
    for count in (1, 2):  # the second start finds the table
        await commit(uri, *values[:count], sink_sql_columns="EVOLVE")
    stored = query(uri, "select id, value, data, explicit_hash_key from records order by id")
    assert stored == [(1, "five", "x", "h"), (2, None, None, None)]


class WithNote(msgspec.Struct):
    id: int
    note: str


@pytest.mark.parametrize(
    ("table", "of", "lost"),
    [
        ("id bigint", None, "'note'"),
        ("id bigint", WithNote, "'note'"),
        ("id bigint, note text", None, None),
        ("id bigint, value text", None, None),
        ("id bigint, note text generated always as ('x') stored", None, None),
    ],
)
async def test_one_warning_names_the_fields_that_are_not_stored(uri, caplog, table, of, lost):
    query(uri, f"create table records ({table})")
    values = [WithNote(1, "a") if of else {"id": 1, "note": "a"}] * 2
    await commit(uri, *values, of=of)
    told = [message for message in caplog.messages if "not stored" in message]
    assert len(told) == bool(lost)
    assert not lost or f"table records has no column for {lost}: the values of this field are not stored" in told[0]


async def test_a_field_that_says_what_is_deleted_needs_no_column(uri, caplog):
    query(uri, "create table records (id bigint primary key)")
    await commit(uri, {"id": 1, "op": "I"}, sink_sql_key="id", sink_sql_delete="op=D")
    assert "not stored" not in caplog.text
