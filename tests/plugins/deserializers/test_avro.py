"""Avro: values by the examples of its specification; what does not fit the schema, and wrong settings, are errors."""

import json

import pytest

import recordpublisher as rp
from recordpublisher.plugins.host.build_from_properties import build_deserializer
from recordpublisher.plugins.host.manager import load_registry

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

    assert values(FROM_THE_SPECIFICATION, **{"schema.file": str(tmp_path / "test.avsc")}) == [{"a": 27, "b": "foo"}]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (FROM_THE_SPECIFICATION[:-1], "EOFError: Expected 3 bytes, read 2 after 4 of 4 bytes"),
        (FROM_THE_SPECIFICATION + b"\0", "the value ends after 5 of 6 bytes"),
        (b"", "EOFError after 0 of 0 bytes"),
        (b"\x00\x06\xff\xff\xff", "UnicodeDecodeError"),
    ],
)
def test_what_does_not_fit_the_schema_is_an_error_that_says_where(data, message):
    with pytest.raises(ValueError, match=f"does not fit the Avro schema: .*{message}"):
        values(data, schema=SCHEMA)


@pytest.mark.parametrize("schema", ["{", '{"type": "nothing"}', json.dumps({"type": "record", "fields": []}), "[7]"])
def test_an_invalid_schema_is_a_configuration_error(schema):
    with pytest.raises(rp.ConfigurationError, match=r"flink\.deserializer\.avro\.schema' has the value"):
        values(schema=schema)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(rp.ConfigurationError, match=r"avro\.schema\.file' has the value .*missing\.avsc.*No such file"):
        values(**{"schema.file": str(tmp_path / "missing.avsc")})


@pytest.mark.parametrize("given", [{}, {"schema": SCHEMA, "schema.file": "x.avsc"}])
def test_exactly_one_schema_is_needed(given):
    with pytest.raises(rp.ConfigurationError, match=r"exactly one of it and flink\.deserializer\.avro\.schema\.file"):
        values(**given)
