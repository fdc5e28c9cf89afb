"""Protobuf of the Glue Schema Registry: bytes of the Java serialiser."""

import pytest

import recordpublisher as rp
from recordpublisher.plugins.deserializers import glue_protobuf
from recordpublisher.plugins.deserializers.glue_protobuf import message_decoder

ORDERS = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  string item = 2;
  google.protobuf.Timestamp at = 3;
  message Zone { string name = 1; }
  Zone zone = 4;
  map<string, int32> counts = 5;
  enum Kind { NONE = 0; }
  message Area { string name = 1; message Deep { int32 z = 1; } }
}
message Customer { string name = 1; }
message Zebra { message Apple { int32 a = 1; } }
"""
WRITTEN_BY_JAVA = {
    "000a03746561": ("shop.Customer", {"name": "tea"}),
    "0108011203746561": ("shop.Order", {"id": 1, "item": "tea"}),
    "020a03746561": ("shop.Order.Area", {"name": "tea"}),
    "030807": ("shop.Order.Area.Deep", {"z": 7}),
    "050a03746561": ("shop.Order.Zone", {"name": "tea"}),
    "06": ("shop.Zebra", {}),
    "070807": ("shop.Zebra.Apple", {"a": 7}),
}
"""Written by software.amazon.glue:schema-registry-serde 1.1.19, without the header."""


@pytest.fixture(scope="module")
def decode():
    return message_decoder(ORDERS)


@pytest.mark.parametrize(("written", "expected"), WRITTEN_BY_JAVA.items(), ids=[n for n, _ in WRITTEN_BY_JAVA.values()])
def test_messages_of_the_java_serialiser_are_read(decode, written, expected):
    message = decode(bytes.fromhex(written))

    assert message.DESCRIPTOR.full_name == expected[0]
    assert {field.name: value for field, value in message.ListFields()} == expected[1]


def test_an_index_of_two_bytes_is_read():
    messages = "\n".join(f"message M{number:03} {{ int32 a = 1; }}" for number in range(200))

    found = message_decoder(f'syntax = "proto3";\n{messages}')(b"\x96\x01\x08\x07")

    assert (found.DESCRIPTOR.full_name, found.a) == ("M150", 7)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "does not begin with the index"),
        (b"\x80", "does not begin with the index"),
        (b"\xff" * 10, "does not begin with the index"),
        (b"\x08", "names message 8 of a schema that has 8"),
        (b"\x01\x08", "is not a message shop.Order"),
    ],
)
def test_other_bytes_are_a_bad_record(decode, payload, message):
    with pytest.raises(ValueError, match=message):
        decode(payload)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("message Order {", "^schema.proto:1:16: Reached end of input"),
        ('syntax = "proto3"; import "other.proto";', "other.proto"),
        ('syntax = "proto3"; import "../../etc/passwd";', "passwd"),
    ],
)
def test_a_definition_that_cannot_be_compiled_names_the_reason(definition, message):
    with pytest.raises(ValueError, match=message):
        message_decoder(definition)


def test_without_the_extra_the_job_ends_and_names_it(monkeypatch):
    monkeypatch.setattr(glue_protobuf, "find_spec", lambda name: None)

    with pytest.raises(rp.ConfigurationError, match=r"pip install .*\[glue\]"):
        message_decoder(ORDERS)
