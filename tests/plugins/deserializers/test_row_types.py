"""The types of rows, from columns as Spark and databases write them and from JSON Schema."""

import json

import msgspec
import pyarrow as pa
import pytest

import recordpublisher as rp
from recordpublisher.plugins.columns.typed_columns import TypedColumns
from recordpublisher.plugins.deserializers.row_types import parse_columns, type_of_json_schema
from recordpublisher.plugins.deserializers.schemas import schema_type


def columns(text):
    return {field.name: str(field.type) for field in TypedColumns(parse_columns(text)).fields}


def decoded(text, payload):
    return msgspec.json.decode(payload, type=parse_columns(text))


@pytest.mark.parametrize(
    ("written", "column"),
    [
        ("BOOLEAN", "bool"),
        ("tinyint", "int8"),
        ("SMALLINT", "int16"),
        ("INT", "int32"),
        ("integer", "int32"),
        ("BIGINT", "int64"),
        ("INT8", "int64"),
        ("FLOAT", "float"),
        ("REAL", "float"),
        ("DOUBLE", "double"),
        ("double precision", "double"),
        ("DECIMAL(12,2)", "decimal128(12, 2)"),
        ("NUMERIC( 5 )", "decimal128(5, 0)"),
        ("STRING", "string"),
        ("CHARACTER VARYING(10)", "string"),
        ("BINARY", "binary"),
        ("DATE", "date32[day]"),
        ("TIMESTAMP", "timestamp[us, tz=UTC]"),
        ("TIMESTAMP WITH TIME ZONE", "timestamp[us, tz=UTC]"),
        ("TIME", "time64[us]"),
        ("UUID", "string"),
        ("ARRAY<ARRAY<INT>>", "list<item: list<item: int32>>"),
        ("TEXT[]", "list<item: string>"),
        ("MAP<STRING, DECIMAL(5, 1)>", "map<string, decimal128(5, 1)>"),
        ("STRUCT<country: STRING, zip: STRUCT<code INT>>", "struct<country: string, zip: struct<code: int32>>"),
    ],
)
def test_a_type_is_a_column(written, column):
    assert columns(f"a {written}, `b c` INT") == {"a": column, "b c": "int32"}


def test_columns_have_the_order_in_which_they_are_written_also_where_one_is_required():
    assert list(columns("b INT, a INT NOT NULL COMMENT 'the first', \"c\" INT NULL")) == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("text", "payload", "reason"),
    [
        ("id BIGINT", b'{"id": 9223372036854775808}', r"Expected `int` <= 9223372036854775807 - at `\$.id`"),
        ("id INT", b'{"id": -2147483649}', r"Expected `int` >= -2147483648 - at `\$.id`"),
        ("id TINYINT", b'{"id": 128}', r"Expected `int` <= 127 - at `\$.id`"),
        ("id INT", b'{"id": "1"}', r"Expected `int \| null`, got `str` - at `\$.id`"),
        ("id INT NOT NULL", b"{}", "missing required field `id`"),
        ("id INT NOT NULL", b'{"id": null}', r"Expected `int`, got `null` - at `\$.id`"),
        ("v VARCHAR(2)", b'{"v": "abc"}', r"Expected `str` of length <= 2 - at `\$.v`"),
        (
            "a DECIMAL(4, 2)",
            b'{"a": 1.234}',
            r"the field 'a' is DECIMAL\(4, 2\), and 1.234 has too many digits: at most 2 digits before the point and 2 after it",
        ),
        ("a DECIMAL(4, 2)", b'{"a": 123}', r"the field 'a' is DECIMAL\(4, 2\), and 123 has too many digits"),
        ("a STRUCT<b: DECIMAL(4, 2)>", b'{"a": {"b": 1e400}}', r"'b' is DECIMAL\(4, 2\).* - at `\$.a`"),
        ("a STRUCT<b: ARRAY<INT>>", b'{"a": {"b": [1, "x"]}}', r"got `str` - at `\$.a.b\[1\]`"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_field_and_both_types(text, payload, reason):
    with pytest.raises(msgspec.ValidationError, match=reason):
        decoded(text, payload)


def test_a_field_may_be_missing_or_null_and_others_are_left_out():
    assert msgspec.structs.asdict(decoded("a INT, b INT, c ARRAY<INT>", b'{"b": null, "c": [null], "d": 4}')) == {
        "a": None,
        "b": None,
        "c": [None],
    }


def test_a_decimal_keeps_all_its_digits():
    values = [decoded("a DECIMAL(38, 18)", b'{"a": 12345678901234567890.123456789012345678}')]

    (column,) = TypedColumns(type(values[0])).arrays(values)
    assert str(column[0]) == "12345678901234567890.123456789012345678"


def test_a_float_that_has_no_place_in_32_bits_is_refused():
    of = parse_columns("a FLOAT")

    assert TypedColumns(of).arrays([of(a=0.5)])[0].type == pa.float32()
    with pytest.raises(ValueError, match=r"'a' of row of the schema.*1e\+300 is too large for 32 bits"):
        TypedColumns(of).arrays([of(a=1e300)])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a name is expected at the beginning, but the text ends there"),
        ("id", "a type is expected after 'id', but the text ends there"),
        ("id BIGINT,", "a name is expected after 'id BIGINT ,', but the text ends there"),
        ("id BIGINTT", "one of the types BOOLEAN.*after 'id', but 'BIGINTT' was found"),
        ("at TIMESTAMP_NTZ", "'TIMESTAMP_NTZ' was found"),
        ("a INT b INT", "a comma or the end is expected after 'a INT', but 'b' was found"),
        ("a INT; b INT", "a comma or the end is expected after 'a INT', but ';' was found"),
        ("; INT", "a name is expected at the beginning, but ';' was found"),
        (
            "a DECIMAL",
            r"digits of a decimal, as in DECIMAL\(12, 2\), are expected after 'a DECIMAL', but the text ends there",
        ),
        ("a DECIMAL(39, 2)", "the precision is 1 to 38"),
        ("a DECIMAL(3, 4)", "the scale at most the precision"),
        ("a DECIMAL(x)", "a number is expected.* 'x' was found"),
        ("a DECIMAL(1, 2, 3)", r"'\)' is expected.* ',' was found"),
        ("a INT(3)", r"a comma or the end is expected.* '\(' was found"),
        ("a ARRAY<INT", "'>' is expected.*the text ends there"),
        ("a MAP<STRING>", "',' is expected.*'>' was found"),
        ("a STRUCT<>", "a name is expected.*'>' was found"),
        ("a INT, a INT", "the field 'a' is declared twice"),
        ("'a' INT", "a name is expected"),
        ("`a INT", "a name is expected"),
        ("a " + "ARRAY<" * 70 + "INT" + ">" * 70, "more than 64 deep"),
    ],
)
def test_a_text_that_is_no_list_of_columns_is_refused_with_its_place(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_columns(text)


def test_a_name_that_python_does_not_take_is_an_attribute_by_its_place():
    row = decoded("`a b` INT, class INT, field_1 INT", b'{"a b": 1, "class": 2, "field_1": 3}')

    assert (row.field_1_, row.field_2, row.field_1) == (1, 2, 3)
    assert TypedColumns(type(row)).arrays([row])[0].to_pylist() == [1]


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


def type_of(properties, **more):
    return type_of_json_schema({"type": "object", "properties": properties, "$defs": DEFS, **more})


@pytest.mark.parametrize("written", TYPES)
def test_a_part_is_a_column(written):
    (field,) = TypedColumns(type_of({"a": json.loads(written)})).fields

    assert str(field.type) == TYPES[written]


def test_a_required_field_must_be_there():
    of = type_of({"a": {"type": "integer"}, "b": {"type": "integer"}}, required=["b"])

    assert msgspec.json.decode(b'{"b": 1}', type=of).a is None
    with pytest.raises(msgspec.ValidationError, match="missing required field `b`"):
        msgspec.json.decode(b'{"a": 1}', type=of)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({}, r"\$.a has the type None"),
        ({"type": ["string", "integer"]}, r"\$.a may have several types"),
        ({"type": "array"}, r"\$.a\[\] has no type"),
        ({"$ref": "#/$defs/missing"}, r"#/\$defs/missing names nothing in this file"),
        ({"$ref": "#/properties/a"}, "is recursive"),
    ],
)
def test_what_has_no_column_is_refused_by_its_place(part, reason):
    with pytest.raises(ValueError, match=reason):
        type_of({"a": part})


@pytest.mark.parametrize("text", ["[]", '{"type": "string"}', '{"type": "object"}', "{"])
def test_what_is_no_schema_of_an_object_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)

    with pytest.raises(rp.ConfigurationError, match=r"flink.deserializer.schema"):
        schema_type(rp.Properties({"flink.deserializer.schema": str(tmp_path / "a.json")}))
