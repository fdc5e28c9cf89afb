"""The columns of a sink's files: fields of a type, or `data` and `value`; a record that has no place in them is rejected alone."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TypedDict

import msgspec
import pyarrow as pa
import pytest
from protobuf_order import Item
from protobuf_order import Order as Message

from recordpublisher.plugins.columns.file_columns import FileColumns, InferredColumns, shape_of_type
from recordpublisher.plugins.columns.record_columns import RECORD_SCHEMA
from recordpublisher.plugins.deserializers.schemas import InferredJson
from recordpublisher.publishers.errors import ConfigurationError

from fakes.batches import batch
from random_inputs import inputs


@dataclass
class Order:
    price: float
    amount: int = 1


def typed(*values):
    return batch(*(b"%d" % number for number, _ in enumerate(values))).with_columns(values=list(values))


def test_without_values_the_columns_are_those_of_spark_and_an_empty_value():
    columns = FileColumns()
    (rows,) = columns.rows([batch(b"a"), batch(b"b", shard_id="shardId-1")], [])

    assert rows.schema.names == [*RECORD_SCHEMA.names, "value"] == columns.schema.names
    assert rows["data"].to_pylist() == [b"a", b"b"]
    assert rows["shardId"].to_pylist() == ["shardId-0", "shardId-1"]
    assert rows["value"].null_count == 2


@dataclass
class Misspelt:
    price: float
    ordr: int | None = None
    note: str | None = None


def test_a_field_that_is_null_in_the_first_thousand_records_is_told_once(caplog):
    columns = FileColumns(Misspelt)
    for group in range(30):
        columns.rows([typed(*(Misspelt(1.0, note="x" if group == 5 else None) for _ in range(100)))], [])
        assert bool(caplog.records) == (group >= 9)

    assert [each.getMessage() for each in caplog.records] == [
        "fields that were null in all of the first 1,000 records: 'ordr'. Check whether the records name them differently"
    ]


def test_values_without_a_type_are_json_beside_their_payload():
    (rows,) = FileColumns().rows([typed({"n": 1}, None)], [])

    assert [json.loads(text) for text in rows["value"].to_pylist()] == [{"n": 1}, None]
    assert rows["data"].to_pylist() == [b"0", b"1"]


def test_fields_of_a_type_are_columns_and_the_payload_is_none():
    columns = FileColumns(Order)
    (rows,) = columns.rows([typed(Order(1.5), Order(2, 3))], [])

    assert columns.schema.names[:3] == ["price", "amount", "stream"]
    assert rows.select(["price", "amount"]).to_pylist() == [{"price": 1.5, "amount": 1}, {"price": 2.0, "amount": 3}]
    assert not {"data", "value"} & set(rows.schema.names)


def test_a_protobuf_message_has_columns_by_its_class_and_is_json_without_it():
    (typed_rows,) = FileColumns(Item).rows([typed(Item(name="tea"))], [])
    (rows,) = FileColumns().rows([typed(Item(name="tea"))], [])

    assert typed_rows.schema.names[:2] == ["name", "kinds"]
    assert json.loads(rows["value"].to_pylist()[0]) == {"name": "tea", "kinds": []}


@pytest.mark.parametrize("kind", [Message, None])
def test_a_duration_that_python_cannot_hold_is_rejected_with_its_record(kind):
    rejected = []
    (rows,) = FileColumns(kind).rows([typed(Message(id=1), Message(took={"seconds": 10**15}))], rejected)

    assert len(rows) == len(rejected) == 1
    assert "too large" in rejected[0][1]


@pytest.mark.parametrize("kind", [bytes, str, dict, list[int], Order | int, object])
def test_a_type_without_fields_leaves_the_payload(kind):
    assert FileColumns(kind).schema == FileColumns().schema


def test_only_the_record_that_has_no_place_is_rejected_and_the_others_keep_their_order():
    rejected = []
    values = [typed(Order(1), Order(2, 2**70), Order(3)), typed(Order(4))]

    rows = FileColumns(Order).rows(values, rejected)

    assert [price for part in rows for price in part["price"].to_pylist()] == [1, 3, 4]
    ((record, reason),) = rejected
    assert record.data == [b"1"]
    assert reason.startswith("field 'amount' of Order does not fit the Arrow type int64")


def test_a_value_without_a_form_in_json_is_rejected_in_a_sentence():
    rejected = []
    rows = FileColumns().rows([typed(1, object(), 3)], rejected)

    assert [text for part in rows for text in part["value"].to_pylist()] == ["1", "3"]
    assert [(record.data, reason.partition(":")[0]) for record, reason in rejected] == [([b"1"], "TypeError")]


def test_an_empty_batch_has_no_rows():
    assert sum(map(len, FileColumns().rows([batch()], []))) == 0


@pytest.mark.parametrize(
    ("fields", "named", "why"),
    [
        (["id", "ID"], "'ID'", "its name differs from that of column 'id' in case only"),
        (["é", "É"], "'É'", "its name differs from that of column 'é' in case only"),
        (["SequenceNumber"], "'sequenceNumber'", "its name differs from that of column 'SequenceNumber' in case only"),
        ([""], "''", "its name is empty"),
        (["a\0"], r"'a\x00'", "its name has a NUL"),
        (["a\ud800"], r"'a\ud800'", "its name has half a surrogate pair"),
    ],
)
def test_a_name_that_readers_of_tables_do_not_take_is_refused(fields, named, why):
    with pytest.raises(ConfigurationError) as raised:
        FileColumns(TypedDict("Row", dict.fromkeys(fields, str)))
    assert f"the field {named} cannot be a column: {why}" in str(raised.value)


@pytest.mark.parametrize("within", [lambda of: of, lambda of: list[of], lambda of: dict[str, list[of]]])
def test_such_a_name_inside_an_object_is_refused(within):
    inner = within(TypedDict("Inner", {"id": str, "ID": str}))
    with pytest.raises(ConfigurationError, match="the field 'ID' cannot be a column"):
        FileColumns(TypedDict("Row", {"rows": inner}))


NAMES = ["a", "b", "A", "c d", "é", "", "stream", "x.y", "class", "\0", "\ud800"]


def value(chosen, level=0):
    kind = chosen.randrange(10 if level < 4 else 7)
    if kind < 7:
        return [None, True, 1, 2**63, -(2**200), 1.5, "text"][kind]
    if kind == 7:
        return [value(chosen, level + 1) for _ in range(chosen.randrange(3))]
    return document(chosen, level + 1)


def document(chosen, level=0):
    return {chosen.choice(NAMES): value(chosen, level) for _ in range(chosen.randrange(4))}


def without_nothing(kept):
    """A value without nulls and what is empty, for which a column has null or nothing."""
    if isinstance(kept, dict):
        return {name: item for name, each in kept.items() if (item := without_nothing(each)) is not None} or None
    if isinstance(kept, list):
        items = [without_nothing(item) for item in kept]
        return None if set(map(type, items)) <= {type(None)} else items
    return kept


@pytest.mark.random
@pytest.mark.parametrize("seed", range(inputs(1_500, quick=50)))
def test_objects_are_rows_with_all_their_values_or_are_rejected(seed):
    chosen, there = random.Random(seed), pa.schema([])
    columns = InferredColumns(there)
    for _ in range(4):
        documents = [document(chosen) for _ in range(chosen.randrange(1, 5))]
        payloads = [msgspec.json.encode(each) for each in documents if is_text(each)] or [b"{}"]
        given = batch(*payloads).with_columns(event_times=[0 for _ in payloads])
        records = given.with_columns(values=InferredJson().values(given))
        if (seen := columns.unknown([records])) is not None:
            before = columns.shape
            columns = columns.grown_by(seen, there)
            there = columns.schema
            assert {name: columns.shape[name] for name in before if not isinstance(before[name], (dict, list))} == {
                name: shape for name, shape in before.items() if not isinstance(shape, (dict, list))
            }
        rejected = []
        rows = [row for part in columns.rows([records], rejected) for row in part.to_pylist()]

        assert len(rows) + len(rejected) == len(payloads)
        bad = {one.data[0] for one, _ in rejected}
        good = [msgspec.json.decode(payload) for payload in payloads if payload not in bad]
        shown = [{name: item for name, item in row.items() if name in columns.shape} for row in rows]
        assert list(map(without_nothing, shown)) == list(map(without_nothing, good))
        assert InferredColumns(there).shape == columns.shape


def is_text(each):
    try:
        msgspec.json.encode(each)
    except UnicodeEncodeError:
        return False
    return True


def test_the_types_of_tables_that_are_not_written_from_json_have_no_shape():
    assert shape_of_type(pa.duration("us")) is None
    assert shape_of_type(pa.struct([("a", pa.timestamp("us"))])) is None
    assert shape_of_type(pa.map_(pa.string(), pa.int32())) == ("STRING", "INT")
