"""Avro: values by the examples of its specification; what does not fit the schema, and wrong settings, are errors."""

import json
from dataclasses import dataclass
from decimal import Decimal

import pytest

import recordpublisher as rp
from recordpublisher.plugins.columns.typed_columns import TypedColumns
from recordpublisher.plugins.deserializers.avro import avro_file_text, decode, parse_schema, type_of_avro_schema
from recordpublisher.plugins.host.build_from_properties import build_deserializer
from recordpublisher.plugins.host.plugin_loading import load_registry

from fakes.batches import batch

SCHEMA = """
{"type": "record", "name": "test", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}
"""
FROM_THE_SPECIFICATION = bytes.fromhex("36 06 66 6f 6f")


def values(*payloads, **given):
    properties = {f"flink.deserializer.avro.{key}": value for key, value in given.items()}
    registry = load_registry()
    return build_deserializer(registry, rp.Properties({"flink.deserializer": "avro", **properties})).values(
        batch(*payloads)
    )


def test_the_record_of_the_specification_is_a_dict():
    assert values(FROM_THE_SPECIFICATION, schema=SCHEMA) == [{"a": 27, "b": "foo"}]


def test_a_file_holds_the_schema(tmp_path):
    (tmp_path / "test.avsc").write_text(SCHEMA)

    assert values(FROM_THE_SPECIFICATION, schema=str(tmp_path / "test.avsc")) == [{"a": 27, "b": "foo"}]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (FROM_THE_SPECIFICATION[:-1], "decoding failed after 4 of 4 bytes: EOFError: Expected 3 bytes, read 2"),
        (FROM_THE_SPECIFICATION + b"\0", "the value ends after 5 of 6 bytes"),
        (b"", "decoding failed after 0 of 0 bytes: EOFError"),
        (b"\x00\x06\xff\xff\xff", "UnicodeDecodeError"),
    ],
)
def test_what_does_not_fit_the_schema_is_an_error_that_says_where(data, message):
    with pytest.raises(ValueError, match=f"does not fit the Avro schema: .*{message}"):
        values(data, schema=SCHEMA)


@pytest.mark.parametrize("schema", ["{", '{"type": "nothing"}', json.dumps({"type": "record", "fields": []}), "[7]"])
def test_an_invalid_schema_is_a_configuration_error(schema):
    with pytest.raises(rp.ConfigurationError, match=r"flink\.deserializer\.avro\.schema' is"):
        values(schema=schema)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(rp.ConfigurationError, match=r"avro\.schema' is .*missing\.avsc.*No such file"):
        values(schema=str(tmp_path / "missing.avsc"))


def test_a_schema_is_needed():
    with pytest.raises(rp.ConfigurationError, match=r"flink\.deserializer\.avro\.schema' .*flink\.deserializer=avro"):
        values()


NODE = '{"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}'
PAIR = """{"type": "record", "name": "A", "fields": [{"name": "b", "type": ["null", {"type": "record", "name": "B",
    "fields": [{"name": "a", "type": {"type": "array", "items": "A"}}]}]}]}"""
DECIMAL = '{"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}'
OPTIONAL = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "long"]}]}'
ENUM = '{"type": "enum", "name": "E", "symbols": ["a", "b"]}'
TWICE = '{"type": "record", "name": "T", "fields": [{"name": "a", "type": %s}, {"name": "b", "type": "%%s"}]}'
IN_A_RECORD = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": %s}]}'


def test_a_recursive_schema_is_read():
    assert values(b"\x02\x02\x00", schema=NODE) == [{"next": {"next": {"next": None}}}]


@pytest.mark.parametrize(
    ("schema", "data", "message"),
    [
        (NODE, b"\x02" * 5_000 + b"\x00", "RecursionError"),
        (PAIR, b"\x02\x02" * 5_000, "RecursionError"),
        (DECIMAL, b"\xc0\x9a\x18" + b"\x7f" * 200_000, "a decimal of 38 digits has 198304 bytes"),
        (IN_A_RECORD % DECIMAL, b"\x24" + b"\x7f" * 18, "a decimal of 38 digits has 18 bytes"),
        (OPTIONAL, b"\x01\x02", "index -1"),
        ('["null", "long"]', b"\x01\x02", "the index of a union or an enum is negative"),
        (ENUM, b"\x01", "index -1"),
        (IN_A_RECORD % ENUM, b"\x01", "index -1"),
        (TWICE % ENUM % "E", b"\x00\x01", "index -1"),
        (TWICE % OPTIONAL % "R", b"\x00\x01\x02", "index -1"),
        (TWICE % (IN_A_RECORD % DECIMAL) % "R", b"\x00\x24" + b"\x7f" * 18, "a decimal of 38 digits has 18 bytes"),
        ('{"type": "array", "items": ["null", "long"]}', b"\x02\x01\x02\x00", "index -1"),
        ('{"type": "map", "values": ' + OPTIONAL + "}", b"\x02\x02k\x01\x02\x00", "index -1"),
    ],
)
def test_bytes_that_would_end_the_process_or_be_taken_for_something_else_are_refused(schema, data, message):
    with pytest.raises(ValueError, match=message):
        values(data, schema=schema)


def test_a_decimal_of_all_its_digits_is_read():
    digits = int("9" * 38).to_bytes(16, "big")
    assert values(b"\x20" + digits, schema=DECIMAL) == [Decimal("9" * 36 + ".99")]


def test_the_last_symbol_of_an_enum_is_read():
    assert values(b"\x02", schema=ENUM) == ["b"]
    assert values(b"\x02", schema=IN_A_RECORD % ENUM) == [{"a": "b"}]


@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        ('{"type": "array", "items": ' + ENUM + "}", b"\x02\x02\x00", ["b"]),
        ('{"type": "map", "values": ' + ENUM + "}", b"\x02\x02k\x02\x00", {"k": "b"}),
        ('["null", ' + ENUM + "]", b"\x02\x02", "b"),
        (TWICE % ENUM % "E", b"\x00\x02", {"a": "a", "b": "b"}),
    ],
)
def test_an_enum_is_read_wherever_it_is(schema, data, value):
    assert values(data, schema=schema) == [value]
    parsed = parse_schema(schema)
    assert decode(data, parsed, parse_schema(schema)) == value


def doubled(times):
    """A schema of records that have the one before twice, from one without a field."""
    schema = {"type": "record", "name": "A0", "fields": []}
    for n in range(1, times + 1):
        fields = [{"name": "l", "type": schema}, {"name": "r", "type": f"A{n - 1}"}]
        schema = {"type": "record", "name": f"A{n}", "fields": fields}
    return json.dumps(schema)


def test_a_record_may_have_others_more_than_once():
    (value,) = values(b"", schema=doubled(3))
    assert value["l"] == value["r"] == {"l": {"l": {}, "r": {}}, "r": {"l": {}, "r": {}}}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ('{"type": "array", "items": "null"}', "items need no bytes"),
        (
            '{"type": "array", "items": {"type": "record", "name": "R", "fields": [{"name": "a", "type": "null"}]}}',
            "items need no bytes",
        ),
        ('{"type": "array", "items":' * 200 + '"long"' + "}" * 200, "nested more than 100 levels deep"),
        ("[" * 20_000, "RecursionError"),
        (doubled(17), "every record A16 has more than 100000 values"),
    ],
)
def test_schemas_whose_records_have_no_bounds_are_refused(schema, message):
    with pytest.raises(rp.ConfigurationError, match=message):
        values(b"", schema=schema)


@dataclass
class Named:
    a: int
    b: str


def test_a_schema_in_python_and_a_type():
    assert rp.Avro(SCHEMA).values(batch(FROM_THE_SPECIFICATION)) == [{"a": 27, "b": "foo"}]
    assert rp.Avro(json.loads(SCHEMA), Named).values(batch(FROM_THE_SPECIFICATION)) == [Named(27, "foo")]


def test_a_schema_that_is_none_is_refused():
    with pytest.raises(rp.ConfigurationError, match=r"setting 'schema'.*an Avro schema as JSON"):
        rp.Avro("{}")


ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "country", "type": "string"}]}
DECIMAL_AVRO_SCHEMA = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
TYPES = {
    "boolean": "bool",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    json.dumps(["null", "long"]): "int64",
    json.dumps(DECIMAL_AVRO_SCHEMA): "decimal128(12, 2)",
    json.dumps({"type": "fixed", "name": "F", "size": 4}): "binary",
    json.dumps({"type": "int", "logicalType": "date"}): "date32[day]",
    json.dumps({"type": "long", "logicalType": "timestamp-millis"}): "timestamp[us, tz=UTC]",
    json.dumps({"type": "string", "logicalType": "uuid"}): "string",
    json.dumps({"type": "string", "logicalType": "unknown"}): "string",
    json.dumps({"type": "enum", "name": "E", "symbols": ["A", "B"]}): "string",
    json.dumps({"type": "array", "items": ["null", DECIMAL_AVRO_SCHEMA]}): "list<item: decimal128(12, 2)>",
    json.dumps({"type": "map", "values": "int"}): "map<string, int32>",
    json.dumps(ADDRESS): "struct<country: string>",
}


def type_of(tmp_path, *fields):
    record = {"type": "record", "name": "shop.Order", "fields": list(fields)}
    (tmp_path / "order.avsc").write_text(json.dumps(record))
    return type_of_avro_schema(json.loads(avro_file_text(str(tmp_path / "order.avsc"))))


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

    (field,) = TypedColumns(type_of_avro_schema(json.loads(avro_file_text(str(tmp_path / "order.avsc"))))).fields
    assert str(field.type) == "struct<country: string>"


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ({"name": "a", "type": ["int", "string"]}, r"\$.a is a union of several types"),
        ({"name": "a", "type": ["null", "shop.Order"]}, r"\$.a is a shop.Order that contains itself"),
        ({"name": "a", "type": "Missing"}, "Missing"),
        ({"name": "a", "type": "null"}, r"\$.a is null"),
    ],
)
def test_what_has_no_column_is_refused_by_its_place(tmp_path, field, reason):
    with pytest.raises(ValueError, match=reason):
        type_of(tmp_path, field)


def test_a_schema_that_is_no_record_is_refused(tmp_path):
    (tmp_path / "a.avsc").write_text('"long"')

    with pytest.raises(ValueError, match="the schema of a row must be a record"):
        type_of_avro_schema(json.loads(avro_file_text(str(tmp_path / "a.avsc"))))
