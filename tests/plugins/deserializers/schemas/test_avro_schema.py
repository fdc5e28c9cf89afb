"""A file `.avsc` as the type of rows."""

import json

import pytest

from recordpublisher.plugins.columns.typed_columns import TypedColumns
from recordpublisher.plugins.deserializers.schemas.avro_schema import type_of_avro_file

ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "country", "type": "string"}]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
TYPES = {
    "boolean": "bool",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    json.dumps(["null", "long"]): "int64",
    json.dumps(DECIMAL): "decimal128(12, 2)",
    json.dumps({"type": "fixed", "name": "F", "size": 4}): "binary",
    json.dumps({"type": "int", "logicalType": "date"}): "date32[day]",
    json.dumps({"type": "long", "logicalType": "timestamp-millis"}): "timestamp[us, tz=UTC]",
    json.dumps({"type": "string", "logicalType": "uuid"}): "string",
    json.dumps({"type": "string", "logicalType": "unknown"}): "string",
    json.dumps({"type": "enum", "name": "E", "symbols": ["A", "B"]}): "string",
    json.dumps({"type": "array", "items": ["null", DECIMAL]}): "list<item: decimal128(12, 2)>",
    json.dumps({"type": "map", "values": "int"}): "map<string, int32>",
    json.dumps(ADDRESS): "struct<country: string>",
}


def type_of(tmp_path, *fields):
    record = {"type": "record", "name": "shop.Order", "fields": list(fields)}
    (tmp_path / "order.avsc").write_text(json.dumps(record))
    return type_of_avro_file(str(tmp_path / "order.avsc"))


@pytest.mark.parametrize("written", TYPES)
def test_a_type_of_avro_is_a_column(tmp_path, written):
    given = json.loads(written) if written[0] in "[{" else written

    (field,) = TypedColumns(type_of(tmp_path, {"name": "a", "type": given})).fields
    assert str(field.type) == TYPES[written]


def test_a_record_that_is_named_again_is_the_same_object(tmp_path):
    of = type_of(tmp_path, {"name": "home", "type": ADDRESS}, {"name": "work", "type": "shop.Address"})

    assert [str(field.type) for field in TypedColumns(of).fields] == ["struct<country: string>"] * 2


def test_a_record_may_be_in_a_file_of_its_name(tmp_path):
    (tmp_path / "Address.avsc").write_text(json.dumps(ADDRESS))
    (tmp_path / "order.avsc").write_text(
        json.dumps({"type": "record", "name": "Order", "fields": [{"name": "home", "type": "Address"}]})
    )

    (field,) = TypedColumns(type_of_avro_file(str(tmp_path / "order.avsc"))).fields
    assert str(field.type) == "struct<country: string>"


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ({"name": "a", "type": ["int", "string"]}, r"\$.a is one of several types"),
        ({"name": "a", "type": ["null", "shop.Order"]}, r"\$.a is a shop.Order inside a shop.Order"),
        ({"name": "a", "type": "Missing"}, "Missing"),
        ({"name": "a", "type": "null"}, r"\$.a is null"),
    ],
)
def test_what_has_no_column_is_refused_by_its_place(tmp_path, field, reason):
    with pytest.raises(ValueError, match=reason):
        type_of(tmp_path, field)


def test_a_schema_that_is_no_record_is_refused(tmp_path):
    (tmp_path / "a.avsc").write_text('"long"')

    with pytest.raises(ValueError, match="the schema of a row is a record"):
        type_of_avro_file(str(tmp_path / "a.avsc"))
