"""A record with a field of every type, from each kind of source; and jobs that write it with each sink, for tests of all readers."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import fastavro
import msgspec
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    json_format,
    message_factory,
    text_format,
    timestamp_pb2,
)

import recordpublisher as rp

from fakes.memory_streams import PROPERTIES, install

MISSING = {"delta": (time, timedelta), "iceberg": (timedelta,)}
"""The types that a format does not have, by sink."""
AT, TOOK = datetime(2026, 11, 29, 0, 2, 3, 4, UTC), timedelta(seconds=90, microseconds=500_000)
TIME, DAY, ID = time(1, 2, 3, 4000), date(2026, 11, 29), UUID(int=7)
LARGE = Decimal("12345678901234567890.123456789012345678")


class Source(NamedTuple):
    """Payloads, the properties and the deserializer that decode them, and the values that the columns have in the end."""

    given: dict[str, str]
    deserializer: Any
    payload: bytes
    nothing: bytes
    values: dict[str, Any]


def json_source(folder, left_out):
    fields = {
        "BOOLEAN": (True, True),
        "TINYINT": (-128, -128),
        "SMALLINT": (32767, 32767),
        "INT": (-(2**31), -(2**31)),
        "BIGINT": (2**63 - 1, 2**63 - 1),
        "FLOAT": (0.5, 0.5),
        "DOUBLE": (1e300, 1e300),
        "DECIMAL(12, 2)": (1234567890.25, Decimal("1234567890.25")),
        "DECIMAL(38, 18)": (str(LARGE), LARGE),
        "STRING": ("tea", "tea"),
        "BINARY": ("AP8=", b"\x00\xff"),
        "DATE": ("2026-11-29", DAY),
        "TIMESTAMP": ("2026-11-29T01:02:03.000004+01:00", AT),
        "TIME": ("01:02:03.004", TIME),
        "UUID": (str(ID), ID),
        "ARRAY<INT>": ([1, None], [1, None]),
        "MAP<STRING, INT>": ({"k": 1}, {"k": 1}),
        "STRUCT<b: INT>": ({"b": 1}, {"b": 1}),
    }
    kept = {
        f"c{place}": (kind, *fields[kind]) for place, kind in enumerate(fields) if type(fields[kind][1]) not in left_out
    }
    schema = ", ".join(f"{name} {kind}" for name, (kind, *_) in kept.items())
    payload = json.dumps({name: given for name, (_, given, _) in kept.items()}).encode()
    values = {name: value for name, (*_, value) in kept.items()}
    return Source({"flink.deserializer.schema": schema}, None, payload, b"{}", values)


def python_source(folder, left_out):
    inner = make_dataclass("Inner", [("b", int)])
    fields = [
        (bool, True, True),
        (int, 2**63 - 1, 2**63 - 1),
        (float, 1e300, 1e300),
        (Decimal, str(LARGE), LARGE),
        (str, "tea", "tea"),
        (bytes, "AP8=", b"\x00\xff"),
        (date, "2026-11-29", DAY),
        (datetime, "2026-11-29T01:02:03.000004+01:00", AT),
        (time, "01:02:03.004", TIME),
        (timedelta, "PT90.5S", TOOK),
        (UUID, str(ID), ID),
        (list[int | None], [1, None], [1, None]),
        (dict[str, int], {"k": 1}, {"k": 1}),
        (inner, {"b": 1}, {"b": 1}),
    ]
    kept = {f"p{place}": field for place, field in enumerate(fields) if field[0] not in left_out}
    of = make_dataclass("Every", [(name, field[0] | None, None) for name, field in kept.items()])
    payload = json.dumps({name: given for name, (_, given, _) in kept.items()}).encode()
    return Source({}, of, payload, b"{}", {name: value for name, (*_, value) in kept.items()})


def avro_source(folder, left_out):
    def logical(kind, of, **more):
        return {"type": of, "logicalType": kind, **more}

    fields = [
        ("boolean", True),
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("float", 0.5),
        ("double", 1e300),
        (logical("decimal", "bytes", precision=12, scale=2), Decimal("1234567890.25")),
        ("string", "tea"),
        ({"type": "enum", "name": "E", "symbols": ["OLD"]}, "OLD"),
        ("bytes", b"\x00\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, b"\x00\xff"),
        (logical("date", "int"), DAY),
        (logical("timestamp-millis", "long"), AT.replace(microsecond=4000)),
        (logical("timestamp-micros", "long"), AT),
        (logical("time-millis", "int"), TIME),
        (logical("time-micros", "long"), TIME),
        (logical("uuid", "string"), ID),
        ({"type": "array", "items": ["null", "int"]}, [1, None]),
        ({"type": "map", "values": "int"}, {"k": 1}),
        ({"type": "record", "name": "R", "fields": [{"name": "b", "type": "int"}]}, {"b": 1}),
    ]
    kept = {f"a{place}": field for place, field in enumerate(fields) if type(field[1]) not in left_out}
    declared = [{"name": name, "type": ["null", kind]} for name, (kind, _) in kept.items()]
    schema = {"type": "record", "name": "Every", "fields": declared}
    (folder / "every.avsc").write_text(json.dumps(schema))
    values = {name: value for name, (_, value) in kept.items()}
    payloads = []
    for row in (values, dict.fromkeys(values)):
        fastavro.schemaless_writer(out := io.BytesIO(), schema, row)
        payloads.append(out.getvalue())
    given = {"flink.deserializer": "avro", "flink.deserializer.avro.schema": str(folder / "every.avsc")}
    return Source(given | {"flink.deserializer.schema": str(folder / "every.avsc")}, None, *payloads, values)


def protobuf_source(folder, left_out):
    fields = [
        ("BOOL", "", True, True),
        ("INT32", "", -(2**31), -(2**31)),
        ("INT64", "", str(2**63 - 1), 2**63 - 1),
        ("UINT32", "", 2**32 - 1, 2**32 - 1),
        ("UINT64", "", str(2**63 - 1), 2**63 - 1),
        ("FLOAT", "", 0.5, 0.5),
        ("DOUBLE", "", 1e300, 1e300),
        ("STRING", "", "tea", "tea"),
        ("ENUM", ".fakes.Kind", "OLD", "OLD"),
        ("BYTES", "", "AP8=", b"\x00\xff"),
        ("MESSAGE", ".google.protobuf.Timestamp", "2026-11-29T00:02:03.000004Z", AT),
        ("MESSAGE", ".google.protobuf.Duration", "90.500s", TOOK),
        ("INT32", "[]", [1, 2], [1, 2]),
        ("MESSAGE", ".fakes.Every.Entry", {"k": 1}, {"k": 1}),
        ("MESSAGE", ".fakes.Inner", {"b": 1}, {"b": 1}),
    ]
    kept = {f"m{place}": field for place, field in enumerate(fields) if type(field[3]) not in left_out}
    text = 'name: "every.proto" package: "fakes" syntax: "proto3" '
    text += 'dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/duration.proto" '
    text += 'enum_type { name: "Kind" value { name: "NEW" number: 0 } value { name: "OLD" number: 1 } } '
    text += 'message_type { name: "Inner" field { name: "b" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL } } '
    text += 'message_type { name: "Every" '
    for number, (name, (kind, of, *_)) in enumerate(kept.items(), 1):
        label = "REPEATED" if of == "[]" or of.endswith("Entry") else "OPTIONAL"
        named = f'type_name: "{of}"' if of.startswith(".") else ""
        text += f'field {{ name: "{name}" number: {number} type: TYPE_{kind} label: LABEL_{label} {named} }} '
    text += 'nested_type { name: "Entry" options { map_entry: true } '
    text += 'field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } '
    text += 'field { name: "value" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL } } }'
    pool = descriptor_pool.DescriptorPool()
    for module in (timestamp_pb2, duration_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(text_format.Parse(text, descriptor_pb2.FileDescriptorProto()))
    of = message_factory.GetMessageClass(pool.FindMessageTypeByName("fakes.Every"))
    message = json_format.ParseDict({name: field[2] for name, field in kept.items()}, of())
    values = {name: field[3] for name, field in kept.items()}
    return Source({}, rp.Protobuf(of), message.SerializeToString(), b"", values)


SOURCES = {"json": json_source, "python": python_source, "avro": avro_source, "protobuf": protobuf_source}


def catalog_of(folder):
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def properties_of(sink, folder, uri=None):
    """The properties of a sink that writes into a folder, or into a database."""
    given = {"flink.sink": sink, "flink.job.name": "every", "flink.state.uri": str(folder / "state")}
    if sink in ("sqlite", "postgresql"):
        del given["flink.state.uri"]
        return given | {
            "flink.sink": "sql",
            "flink.sink.sql.uri": uri or f"sqlite:///{folder}/every.db",
            "flink.sink.sql.table": "every",
        }
    if sink == "delta":
        return given | {"flink.sink.delta.uri": str(folder / "every")}
    if sink == "iceberg":
        catalog = {f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog_of(folder).items()}
        return given | catalog | {"flink.sink.iceberg.table": "lake.every"}
    return given | {f"flink.sink.{sink}.path": str(folder / "every")}


async def write(monkeypatch, kind, sink, folder, uri=None, without=()):
    """Run a job that writes a record with every type, and one without a value. Return the values of the first one.

    `without`: types that the reader does not have.
    """
    source = SOURCES[kind](folder, (*MISSING.get(sink, ()), *without))
    install(monkeypatch, {"a": [source.payload, source.nothing]}, closed=True)
    given = {**PROPERTIES, **properties_of(sink, folder, uri), **source.given}
    async with rp.DataFetcher(["orders"], given, deserializer=source.deserializer) as fetcher:
        await fetcher.run()
    return source.values


def plain(found, expected):
    """A value as a reader has it, in the form of the expected one: only representations differ between readers, never values."""
    if found is None or expected is None:
        return found
    if isinstance(expected, (list, dict)) and isinstance(found, str):
        found = json.loads(found)
    if isinstance(expected, dict):
        found = found.asDict() if hasattr(found, "asDict") else found
        pairs = (
            found.items()
            if isinstance(found, dict)
            else [each.values() if isinstance(each, dict) else each for each in found]
        )
        return dict(map(tuple, pairs))
    if isinstance(expected, datetime):
        at = found if isinstance(found, datetime) else datetime.fromisoformat(str(found))
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    if isinstance(expected, timedelta):
        found = msgspec.convert(found, timedelta) if isinstance(found, str) else found
        return timedelta(microseconds=found) if isinstance(found, int) else found
    if isinstance(expected, bytes):
        return base64.b64decode(found) if isinstance(found, str) else bytes(found)
    if isinstance(expected, (date, time)):
        return type(expected).fromisoformat(str(found))
    if isinstance(expected, (Decimal, UUID, bool)):
        return type(expected)(found) if isinstance(expected, bool) else type(expected)(str(found))
    return found
