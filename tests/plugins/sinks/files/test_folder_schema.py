"""A folder has files that readers can read as one table: a start with other columns is refused before anything is written."""

import asyncio
import re
from dataclasses import dataclass, make_dataclass
from decimal import Decimal

import duckdb
import pyarrow.dataset as ds
import pytest

import recordpublisher as rp

from fakes.batches import batch


@dataclass
class Order:
    id: int
    price: Decimal


Text = make_dataclass("Text", [("id", int), ("price", str)])
More = make_dataclass("More", [("id", int), ("price", Decimal), ("note", str)])
OtherNote = make_dataclass("OtherNote", [("id", int), ("note", int)])
OtherCase = make_dataclass("OtherCase", [("id", int), ("Price", Decimal)])
Nested = make_dataclass("Nested", [("id", int), ("price", Order)])


def sink_in(folder, **more):
    return rp.ParquetSink(rp.Properties({"flink.sink.parquet.path": str(folder), **more}))


async def written(folder, value, number=1, **more):
    sink = sink_in(folder, **more)
    await sink.open(rp.SinkContext(value_type=type(value)))
    await sink.write(batch(b"x", first=number).with_columns(values=[value]))
    await sink.flush()


@pytest.mark.parametrize("changed", [Text, OtherCase, Nested])
async def test_a_start_with_another_type_or_spelling_of_a_column_is_refused(tmp_path, changed):
    await written(tmp_path, Order(1, Decimal(1)))
    words = r"parquet.path' .*column 'price' of the type decimal128\(38, 18\), .* have '[Pp]rice' of .*; keep the name and the type"
    with pytest.raises(rp.ConfigurationError, match=words):
        await sink_in(tmp_path).check_values(rp.SinkContext(value_type=changed))
    with pytest.raises(rp.ConfigurationError, match=words):
        await sink_in(tmp_path).open(rp.SinkContext(value_type=changed))
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


async def test_a_new_column_is_added_and_remembered_also_by_a_start_without_it(tmp_path):
    await written(tmp_path, Order(1, Decimal(1)), 1)
    await written(tmp_path, More(2, Decimal(2), "a"), 2)
    await written(tmp_path, Order(3, Decimal(3)), 3)
    with pytest.raises(
        rp.ConfigurationError, match="'note' of the type string, the records have 'note' of the type int64"
    ):
        await sink_in(tmp_path).open(rp.SinkContext(value_type=OtherNote))

    files = [ds.dataset(file) for file in sorted(map(str, tmp_path.rglob("*.parquet")))]
    rows = ds.dataset(files, schema=files[1].schema).to_table(columns=["id", "note"]).to_pylist()
    assert sorted(row["id"] for row in rows) == [1, 2, 3]


Place = make_dataclass("Place", [("country", str)])
Sent = make_dataclass("Sent", [("id", int), ("to", Place), ("by", list[Place]), ("of", dict[str, Place])])
LaterPlace = make_dataclass("LaterPlace", [("country", str), ("code", int)])
LaterSent = make_dataclass(
    "LaterSent", [("id", int), ("to", LaterPlace), ("by", list[LaterPlace]), ("of", dict[str, LaterPlace])]
)


async def test_a_field_inside_an_object_is_added_and_remembered_as_a_column_is(tmp_path):
    old, new = Place("NO"), LaterPlace("SE", 7)
    await written(tmp_path, Sent(1, old, [old], {"a": old}), 1)
    await written(tmp_path, LaterSent(2, new, [new], {"a": new}), 2)
    await written(tmp_path, Sent(3, old, [old], {"a": old}), 3)
    for name, of in (("code", str), ("Code", int)):
        other = make_dataclass("Other", [("id", int), ("by", list[make_dataclass("Inner", [(name, of)])])])
        with pytest.raises(rp.ConfigurationError, match="have a column 'by' of the type list"):
            await sink_in(tmp_path).open(rp.SinkContext(value_type=other))

    found = duckdb.sql(
        f'SELECT id, "to".code, "by"[1].code, "of"[\'a\'].code FROM read_parquet(\'{tmp_path}/**/*.parquet\', union_by_name=true)'
    )
    assert sorted(found.fetchall()) == [(1, None, None, None), (2, 7, 7, 7), (3, None, None, None)]


async def test_other_partitions_are_refused(tmp_path):
    await written(tmp_path, Order(1, Decimal(1)), **{"flink.sink.partitions": "id={id}"})
    with pytest.raises(rp.ConfigurationError, match=re.escape("partitioned by id; write to another folder")):
        await sink_in(tmp_path).open(rp.SinkContext(value_type=Order))


async def test_of_two_types_that_start_at_the_same_time_one_is_refused(tmp_path, monkeypatch):
    first, second = sink_in(tmp_path), sink_in(tmp_path)

    async def nothing(name):
        return None

    monkeypatch.setattr(second.entries(), "get", nothing)  # it has looked before the first one has written
    await first.open(rp.SinkContext(value_type=Order))
    with pytest.raises(rp.ConfigurationError, match="'price'"):
        await second.open(rp.SinkContext(value_type=Text))


async def test_columns_of_processes_that_start_at_the_same_time_are_all_remembered(tmp_path):
    types = [make_dataclass(f"Type{n}", [("id", int), (f"field{n}", str)]) for n in range(4)]
    await asyncio.gather(*(sink_in(tmp_path).open(rp.SinkContext(value_type=of)) for of in types))
    for n in range(4):
        other = make_dataclass("Other", [("id", int), (f"field{n}", int)])
        with pytest.raises(rp.ConfigurationError, match=f"'field{n}'"):
            await sink_in(tmp_path).open(rp.SinkContext(value_type=other))


async def test_a_check_of_the_values_stores_nothing(tmp_path):
    await sink_in(tmp_path).check_values(rp.SinkContext(value_type=Order))
    assert list(tmp_path.iterdir()) == []


async def test_a_document_of_a_later_version_is_named(tmp_path):
    await sink_in(tmp_path).entries().put_if_absent("columns", b'{"format": 2}')
    with pytest.raises(rp.StateError, match=r"columns in .* it has format 2, and this version reads only format 1"):
        await sink_in(tmp_path).open(rp.SinkContext(value_type=Order))
