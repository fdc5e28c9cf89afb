"""A JSON Schema as the type of rows."""

import json

import msgspec
import pytest

from recordpublisher.plugins.columns.typed_columns import TypedColumns
from recordpublisher.plugins.deserializers.schemas.json_schema import type_of_json_schema_file

TYPES = {
    '{"type": "boolean"}': "bool",
    '{"type": "integer"}': "int64",
    '{"type": "number"}': "double",
    '{"type": "string"}': "string",
    '{"type": ["string", "null"]}': "string",
    '{"anyOf": [{"type": "integer"}, {"type": "null"}]}': "int64",
    '{"type": "string", "format": "date-time"}': "timestamp[us, tz=UTC]",
    '{"type": "string", "format": "date"}': "date32[day]",
    '{"type": "string", "format": "email"}': "string",
    '{"type": "string", "contentEncoding": "base64"}': "binary",
    '{"enum": ["A", "B"]}': "string",
    '{"type": "array", "items": {"$ref": "#/$defs/address"}}': "list<item: struct<country: string>>",
    '{"type": "object", "additionalProperties": {"type": "integer"}}': "map<string, int64>",
}
DEFS = {"address": {"type": "object", "properties": {"country": {"type": "string"}}}}


def type_of(tmp_path, properties, **more):
    schema = {"type": "object", "properties": properties, "$defs": DEFS, **more}
    (tmp_path / "a.json").write_text(json.dumps(schema))
    return type_of_json_schema_file(str(tmp_path / "a.json"))


@pytest.mark.parametrize("written", TYPES)
def test_a_part_is_a_column(tmp_path, written):
    (field,) = TypedColumns(type_of(tmp_path, {"a": json.loads(written)})).fields

    assert str(field.type) == TYPES[written]


def test_a_required_field_must_be_there(tmp_path):
    of = type_of(tmp_path, {"a": {"type": "integer"}, "b": {"type": "integer"}}, required=["b"])

    assert msgspec.json.decode(b'{"b": 1}', type=of).a is None
    with pytest.raises(msgspec.ValidationError, match="missing required field `b`"):
        msgspec.json.decode(b'{"a": 1}', type=of)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({}, r"\$.a has the type None"),
        ({"type": ["string", "integer"]}, r"\$.a is one of several types"),
        ({"type": "array"}, r"\$.a\[\] has no type"),
        ({"$ref": "#/$defs/missing"}, r"#/\$defs/missing is not a part of this file"),
        ({"$ref": "#/properties/a"}, "is inside itself"),
    ],
)
def test_what_has_no_column_is_refused_by_its_place(tmp_path, part, reason):
    with pytest.raises(ValueError, match=reason):
        type_of(tmp_path, {"a": part})


@pytest.mark.parametrize("text", ["[]", '{"type": "string"}', '{"type": "object"}', "{"])
def test_what_is_no_schema_of_an_object_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)

    with pytest.raises(ValueError, match=r"."):
        type_of_json_schema_file(str(tmp_path / "a.json"))
