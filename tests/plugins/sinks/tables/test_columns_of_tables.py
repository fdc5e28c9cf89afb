"""The columns and partitions of a table: made of the type, or of the payload; added by option; a table that differs is refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated

import duckdb
import msgspec
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

import recordpublisher as rp
from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA

from .lake_tables import Delta, Iceberg, data_files, number, opened
from fakes.batches import batch

PATTERN = {"flink.sink.partitions": "dt={eventTime:%Y-%m-%d}/hour={eventTime:%H}/country={country}"}
HOUR_MS = 3_600_000


@dataclass
class Order:
    price: float
    country: str | None = None


@dataclass
class Address:
    country: str
    at: datetime = datetime(2026, 11, 29, tzinfo=UTC)


@dataclass
class Customer:
    id: int
    address: Address


@dataclass
class LaterOrder:
    price: float
    country: str | None = None
    amount: int = 0


@dataclass
class OtherOrder:
    price: str


@dataclass
class Lasting:
    time: timedelta


@dataclass
class Dated:
    at: datetime


@dataclass
class Paid:
    at: datetime | None


@dataclass
class OfDay:
    at: time


@dataclass
class Shop:
    hours: list[time]


@pytest.fixture(params=[Delta, Iceberg])
def kind(request, tmp_path):
    return request.param(tmp_path)


async def written(kind, n, *values, times=None, **more):
    context = rp.SinkContext(value_type=type(values[0]))
    sink = await opened(kind, f"job.0.{n}", context, **more)
    records = batch(*(b"x" for _ in values)).with_columns(values=list(values), event_times=times or [0 for _ in values])
    await sink.write(records)
    await sink.publish([await sink.stage(number(n))])
    await sink.close()


async def test_a_table_is_created_with_the_columns_of_the_payload(kind):
    sink = await opened(kind)
    await sink.write(batch(b"a"))
    await sink.publish([await sink.stage(number(1))])
    (row,) = kind.rows()
    assert list(row) == [*RECORD_SCHEMA.names, "value"]
    assert (row["data"], row["shardId"], row["value"]) == (b"a", "shardId-0", None)
    await sink.close()


async def test_columns_of_the_table_that_the_records_do_not_have_are_named_at_the_start(kind, caplog):
    await written(kind, 1, LaterOrder(1, amount=3))
    assert "do not have" not in caplog.text
    await written(kind, 2, Order(1.5, "CH"))

    assert "has the column 'amount' that the records of this job do not have" in caplog.text


async def test_a_table_is_created_with_the_fields_of_the_type(kind):
    await written(kind, 1, Order(1.5, "CH"))
    (row,) = kind.rows()
    assert (row["price"], row["country"], "data" in row) == (1.5, "CH", False)


async def test_a_column_that_is_missing_is_refused_or_added_by_option(kind):
    await written(kind, 1, Order(1.5))
    with pytest.raises(rp.ConfigurationError, match=r"no column 'amount'"):
        await kind.sink().open(rp.SinkContext(value_type=LaterOrder))

    await written(kind, 2, LaterOrder(2, amount=3), **{"flink.sink.table.columns": "EVOLVE"})
    await written(kind, 3, Order(4))  # an old process: its files lack the column

    assert sorted((row["price"], row["amount"]) for row in kind.rows() if row["amount"]) == [(2.0, 3)]
    assert len(kind.rows()) == 3


async def test_a_column_of_another_type_is_refused(kind):
    await written(kind, 1, Order(1.5))
    with pytest.raises(rp.ConfigurationError, match="price"):
        await kind.sink(**{"flink.sink.table.columns": "EVOLVE"}).open(rp.SinkContext(value_type=OtherOrder))


async def test_a_type_that_the_format_has_not_is_refused(kind):
    with pytest.raises(rp.ConfigurationError):
        await kind.sink().open(rp.SinkContext(value_type=Lasting))


@pytest.mark.parametrize("of", [OfDay, Shop])
async def test_a_time_of_day_is_no_field_of_delta_and_told_by_its_name(tmp_path, of):
    words = "'at': it is time64[us], for" if of is OfDay else "'hours': it is list<item: time64[us]>, for"
    with pytest.raises(rp.ConfigurationError) as raised:
        await Delta(tmp_path).sink().open(rp.SinkContext(value_type=of))
    assert words in str(raised.value)
    assert "<unknown>" not in str(raised.value)


async def test_a_schema_that_others_change_meanwhile_stops_no_commit(kind):
    context = rp.SinkContext(value_type=Order)
    sink = await opened(kind, context=context)
    await sink.write(batch(b"x").with_columns(values=[Order(1.5)]))
    one = await sink.stage(number(1))
    more = kind.sink(**{"flink.sink.table.columns": "EVOLVE"})
    await more.open(rp.SinkContext(value_type=LaterOrder))

    await sink.publish([one])

    assert [(row["price"], row["amount"]) for row in kind.rows()] == [(1.5, None)]
    await sink.close()


async def test_each_partition_has_files_of_its_own(kind):
    values = [Order(1, "CH"), Order(2, "DE"), Order(3, "CH"), Order(4)]
    await written(kind, 1, *values, times=[0, 0, HOUR_MS, HOUR_MS], **PATTERN)

    assert len(data_files(kind)) == 4
    assert sorted((row["price"], row["country"]) for row in kind.rows()) == [(1, "CH"), (2, "DE"), (3, "CH"), (4, None)]


async def test_the_first_and_the_last_time_have_their_partitions(kind):
    first, last = (time.replace(tzinfo=UTC) for time in (datetime.min, datetime.max))
    await written(kind, 1, Dated(first), Dated(last), **{"flink.sink.partitions": "dt={at:%Y-%m-%d}"})

    if kind.name == "delta":
        found, days = {row["dt"] for row in kind.rows()}, ["0001-01-01", "9999-12-31"]
    else:
        partitions = kind.table().inspect.partitions().to_pylist()
        found, days = {each["partition"]["at_day"] for each in partitions}, [first.date(), last.date()]
    assert sorted(found) == days
    assert sorted(row["at"] for row in kind.rows()) == [first, last]


async def test_a_time_may_be_missing_in_all_records(kind):
    await written(kind, 1, Paid(None))
    await written(kind, 2, Paid(None), Paid(datetime(2026, 1, 1, tzinfo=UTC)))
    assert [row["at"] for row in kind.rows()].count(None) == 2


async def test_iceberg_rejects_a_time_that_utc_has_no_year_for(tmp_path):
    """It was committed, and could never be published: the statistics of its file are no time of Python."""
    rejected, kind = [], Iceberg(tmp_path)

    async def reject(record, reason):
        rejected.append((record.sequence_numbers, reason))

    sink = await opened(kind, context=rp.SinkContext(value_type=Dated, reject=reject))
    west, east = timezone(-timedelta(hours=5)), timezone(timedelta(hours=5))
    times = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=west), datetime.min.replace(tzinfo=east)]
    await sink.write(batch(b"x", b"x", b"x").with_columns(values=[Dated(at) for at in times]))
    await sink.publish([await sink.stage(number(1))])
    await sink.close()

    assert [numbers for numbers, _ in rejected] == [["2"], ["3"]]
    assert "the column 'at' has a time before the year 1 or after 9999 in UTC" in rejected[0][1]
    assert [row["at"] for row in kind.rows()] == times[:1]


async def test_a_long_text_has_its_partition_or_is_rejected(kind):
    rejected = []

    async def reject(record, reason):
        rejected.append((record.sequence_numbers, reason))

    context = rp.SinkContext(value_type=Order, reject=reject)
    sink = await opened(kind, context=context, **{"flink.sink.partitions": "country={country}"})
    texts = ["k" * 4088, "k" * 4089]
    await sink.write(batch(b"x", b"x").with_columns(values=[Order(1, text) for text in texts]))
    await sink.publish([await sink.stage(number(1))])
    await sink.close()

    is_iceberg = kind.name == "iceberg"
    assert [numbers for numbers, _ in rejected] == ([["2"]] if is_iceberg else [])
    assert sorted(row["country"] for row in kind.rows()) == texts[: 1 if is_iceberg else 2]
    if is_iceberg:
        (found,) = kind.table().inspect.partitions().to_pylist()
        assert found["partition"] == {"country_identity": texts[0]}


async def test_a_table_with_other_partitions_is_refused(kind):
    await written(kind, 1, Order(1, "CH"), **PATTERN)
    with pytest.raises(rp.ConfigurationError, match="is partitioned by"):
        await kind.sink().open(rp.SinkContext(value_type=Order))
    await written(kind, 2, Order(1, "CH"), **PATTERN)


async def test_readers_of_delta_leave_out_files_by_partition_and_by_statistics(tmp_path):
    kind = Delta(tmp_path)
    values = [LaterOrder(1, "CH", 5), LaterOrder(2, "DE", 7)]
    await written(kind, 1, *values, times=[0, HOUR_MS], **PATTERN)
    table = DeltaTable(str(kind.data))

    assert table.metadata().partition_columns == ["dt", "hour", "country"]
    assert [row["price"] for row in table.to_pyarrow_table(filters=[("hour", "=", "01")]).to_pylist()] == [2]
    actions = {row["min.amount"]: row for row in _actions(table)}
    assert actions[7]["max.amount"] == 7
    assert (actions[7]["num_records"], actions[7]["null_count.price"]) == (1, 0)


def _actions(table):
    import pyarrow as pa

    return pa.table(table.get_add_actions(flatten=True)).to_pylist()


async def test_iceberg_is_partitioned_by_the_smallest_unit_of_the_pattern(tmp_path):
    kind = Iceberg(tmp_path)
    await written(kind, 1, Order(1, "CH"), Order(2, "DE"), times=[0, HOUR_MS], **PATTERN)
    table = kind.table()

    assert [str(field.transform) for field in table.spec().fields] == ["hour", "identity"]
    assert [row["price"] for row in table.scan("country = 'DE'").to_arrow().to_pylist()] == [2]


async def test_a_partition_of_iceberg_by_a_field_inside_an_object_has_the_name_of_the_pattern(tmp_path):
    kind = Iceberg(tmp_path)
    values = [Customer(1, Address("CH")), Customer(2, Address("DE"))]
    pattern = {"flink.sink.partitions": "country={address.country}/hour={address.at:%H}/dt={eventTime:%Y-%m-%d}"}
    await written(kind, 1, *values, **pattern)
    await written(kind, 2, *values, **pattern)
    table = kind.table()

    assert [field.name for field in table.spec().fields] == ["country", "address_at_hour", "eventTime_day"]
    assert {row["partition"]["country"] for row in table.inspect.partitions().to_pylist()} == {"CH", "DE"}
    assert [row["id"] for row in table.scan("address.country = 'DE'").to_arrow().to_pylist()] == [2, 2]

    table.update_spec().rename_field("country", "address_country_identity").commit()
    await written(kind, 3, *values, **pattern)
    assert len(kind.rows()) == 6


async def test_other_tools_count_the_same_rows(tmp_path):
    delta = Delta(tmp_path / "d")
    await written(delta, 1, Order(1, "CH"), Order(2, "DE"))
    files = DeltaTable(str(delta.data)).file_uris()
    assert duckdb.sql(f"select count(*), sum(price) from read_parquet({files!r})").fetchall() == [(2, 3.0)]


async def test_a_table_of_others_is_written_to(tmp_path):
    kind = Delta(tmp_path)
    await written(kind, 1, Order(1, "CH"))
    other = kind.rows()
    import pyarrow as pa

    write_deltalake(
        str(kind.data), pa.Table.from_pylist(other, DeltaTable(str(kind.data)).to_pyarrow_table().schema), mode="append"
    )
    DeltaTable(str(kind.data)).optimize.compact()
    await written(kind, 2, Order(2, "CH"))
    assert sorted(row["price"] for row in kind.rows()) == [1, 1, 2]


async def test_what_was_published_and_compacted_by_others_is_not_added_again(tmp_path):
    kind = Delta(tmp_path)
    sink = await opened(kind)
    ready = []
    for n in (1, 2):
        await sink.write(batch(b"%d" % n))
        ready.append(await sink.stage(number(n)))
        await sink.publish(ready[-1:])
    DeltaTable(str(kind.data)).optimize.compact()

    await sink.publish(ready)

    assert sorted(row["data"] for row in kind.rows()) == [b"1", b"2"]
    await sink.close()


async def test_the_positions_are_in_the_table_for_people(kind):
    await written(kind, 1, Order(1.5), Order(2))
    if isinstance(kind, Delta):
        shown = DeltaTable(str(kind.data)).history(1)[0]["recordpublisher"]
    else:
        shown = kind.table().current_snapshot().summary.additional_properties["recordpublisher.positions"]
    assert '"orders/shardId-0": "2"' in shown


async def test_a_catalogue_in_memory_is_one_for_all_calls(tmp_path):
    given = {"type": "in-memory", "warehouse": f"file://{tmp_path}/warehouse"}
    given = {f"flink.sink.iceberg.catalog.{name}": value for name, value in given.items()}
    kind = Iceberg(tmp_path)
    kind.sink = lambda **more: _iceberg(**given, **more)
    sink = await opened(kind)
    await sink.write(batch(b"a"))
    await sink.publish([await sink.stage(number(1))])
    assert len(list((tmp_path / "warehouse").rglob("*.parquet"))) == 1
    await sink.close()


def _iceberg(**given):
    from recordpublisher.plugins.sinks.tables.iceberg import IcebergSink

    return IcebergSink(rp.Properties({"flink.sink.iceberg.table": "lake.orders", "flink.state.uri": "/tmp/x", **given}))


def test_iceberg_needs_a_place_for_positions_and_a_table_in_a_namespace():
    with pytest.raises(rp.ConfigurationError, match=r"flink.state.uri.*cannot store the job's positions"):
        _iceberg(**{"flink.state.uri": None})
    with pytest.raises(rp.ConfigurationError, match=r"namespace\.table"):
        _iceberg(**{"flink.sink.iceberg.table": "orders"})


def test_the_password_of_a_catalogue_is_never_shown():
    sink = _iceberg(**{"flink.sink.iceberg.catalog.uri": "postgresql://loader:s3cr3t@db/lake"})
    assert (
        sink.destination()
        == "IcebergSink, Iceberg table lake.orders of the catalogue postgresql://loader:******@db/lake"
    )


async def test_the_retries_of_pyiceberg_stay_on_for_others(tmp_path):
    kind = Iceberg(tmp_path)
    await written(kind, 1, Order(1.5))
    assert (
        "commit.retry.num-retries" not in load_catalog("default", **kind.catalog).load_table("lake.orders").properties
    )


def test_a_place_of_delta_that_is_no_storage_is_refused():
    from recordpublisher.plugins.sinks.tables.delta import DeltaSink

    for place in (None, "sqlite:///x.db", "s3://bucket/a?b=c"):
        with pytest.raises(rp.ConfigurationError, match=r"s3://bucket/prefix"):
            DeltaSink(rp.Properties({"flink.sink.delta.uri": place}))


@dataclass
class Place:
    country: str | None


@dataclass
class Sent:
    address: Place
    stops: list[Place]
    by_name: dict[str, Place]


@dataclass
class LaterPlace:
    country: str | None
    code: int | None = None


@dataclass
class LaterSent:
    address: LaterPlace
    stops: list[LaterPlace]
    by_name: dict[str, LaterPlace]


EVOLVE = {"flink.sink.table.columns": "EVOLVE"}
OLD, NEW = Place("NO"), LaterPlace("SE", 7)


def nested_rows(kind):
    rows = sorted(kind.rows(), key=lambda row: row["address"]["country"])
    return [(row["address"], row["stops"], dict(row["by_name"])) for row in rows]


async def test_evolve_adds_fields_inside_objects_lists_and_maps(kind):
    await written(kind, 1, Sent(OLD, [OLD], {"a": OLD}))
    await written(kind, 2, LaterSent(NEW, [NEW], {"a": NEW}), **EVOLVE)

    old, new = {"country": "NO", "code": None}, {"country": "SE", "code": 7}
    assert nested_rows(kind) == [(old, [old], {"a": old}), (new, [new], {"a": new})]


async def test_rows_of_the_earlier_type_are_written_to_a_table_with_more_fields_in_objects(kind):
    await written(kind, 1, LaterSent(NEW, [NEW], {"a": NEW}))
    await written(kind, 2, Sent(OLD, [OLD], {"a": OLD}))

    old, new = {"country": "NO", "code": None}, {"country": "SE", "code": 7}
    assert nested_rows(kind) == [(old, [old], {"a": old}), (new, [new], {"a": new})]


async def test_a_field_inside_an_object_that_the_table_lacks_is_refused_by_its_path_without_evolve(kind):
    await written(kind, 1, Sent(OLD, [OLD], {"a": OLD}))

    with pytest.raises(
        rp.ConfigurationError, match=r"has no column 'address.code', 'stops\[\].code', 'by_name\[\].code'"
    ):
        await written(kind, 2, LaterSent(NEW, [NEW], {"a": NEW}))


@dataclass
class OtherPlace:
    country: int | None


@dataclass
class OtherSent:
    address: OtherPlace


async def test_another_type_inside_an_object_is_refused_by_its_path(kind):
    await written(kind, 1, Sent(OLD, [OLD], {"a": OLD}))

    with pytest.raises(rp.ConfigurationError, match=r"'?address.country|Cannot change column type: address.country"):
        await written(kind, 2, OtherSent(OtherPlace(7)), **EVOLVE)


async def test_a_field_that_another_job_adds_inside_an_object_does_not_end_this_one(kind):
    first = await opened(kind, "job.0.1", rp.SinkContext(value_type=Sent))
    await first.write(batch(b"x").with_columns(values=[Sent(OLD, [OLD], {"a": OLD})], event_times=[0]))
    staged = await first.stage(number(3))
    await written(kind, 2, LaterSent(NEW, [NEW], {"a": NEW}), **EVOLVE)

    await first.publish([staged])
    await first.close()

    assert len(nested_rows(kind)) == 2


Small = msgspec.defstruct(
    "Small",
    [
        ("n", Annotated[int, msgspec.Meta(extra={"column": "INT"})]),
        ("x", Annotated[float, msgspec.Meta(extra={"column": "FLOAT"})]),
        ("d", Annotated[Decimal, msgspec.Meta(extra={"column": "DECIMAL(5, 2)"})]),
    ],
)
Large = msgspec.defstruct(
    "Large",
    [("n", int), ("x", float), ("d", Annotated[Decimal, msgspec.Meta(extra={"column": "DECIMAL(9, 2)"})])],
)


async def test_evolve_widens_the_columns_of_iceberg(tmp_path):
    kind = Iceberg(tmp_path)
    await written(kind, 1, Small(1, 0.5, Decimal("1.25")))
    await written(kind, 2, Large(2**40, 1e300, Decimal("1234567.25")), **EVOLVE)
    await written(kind, 3, Small(2, 1.5, Decimal("2.25")), **EVOLVE)

    assert sorted((row["n"], row["x"], row["d"]) for row in kind.rows()) == [
        (1, 0.5, Decimal("1.25")),
        (2, 1.5, Decimal("2.25")),
        (2**40, 1e300, Decimal("1234567.25")),
    ]


@pytest.mark.parametrize(
    ("of", "kind"),
    [
        (Delta, "column 'n' is integer in .*, and long in the records. Valid: .*rewrite the table"),
        (Iceberg, "column 'n' is int in .*, and long in the records. Valid: EVOLVE, which widens the column"),
    ],
)
async def test_a_wider_type_is_refused_by_delta_and_without_evolve(tmp_path, of, kind):
    table = of(tmp_path)
    await written(table, 1, Small(1, 0.5, Decimal("1.25")))

    with pytest.raises(rp.ConfigurationError, match=kind):
        await written(table, 2, Large(1, 1.0, Decimal("1.25")), **(EVOLVE if of is Delta else {}))
