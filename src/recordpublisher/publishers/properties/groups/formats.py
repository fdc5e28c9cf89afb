"""Declares the properties of the record formats that need a schema."""

from ..property_types import PropertyGroup

FORMATS = PropertyGroup("Formats")
SCHEMA = FORMATS.text(
    "flink.deserializer.schema",
    "The fields of objects in records, as columns (`id BIGINT, amount DECIMAL(12, 2), address STRUCT<country: STRING>`), "
    "or the path of a file: `.avsc`, or `.json` (JSON Schema). They are checked, and are columns as those of a type. "
    "INFER: the sinks delta, iceberg, sql, parquet and jsonl add columns as the data shows them.",
)
AVRO_SCHEMA = FORMATS.text(
    "flink.deserializer.avro.schema",
    "The Avro schema of the records, as JSON. Either this or `flink.deserializer.avro.schema.file`.",
)
AVRO_SCHEMA_FILE = FORMATS.text(
    "flink.deserializer.avro.schema.file", "A file with the Avro schema of the records (`.avsc`)."
)
GLUE_ENDPOINT = FORMATS.text(
    "flink.deserializer.glue.endpoint", "Another endpoint of the Glue Schema Registry, for example of a VPC."
)
PROTOBUF_MESSAGE = FORMATS.text(
    "flink.deserializer.protobuf.message",
    "The full name of the Protobuf message in each record, for example `shop.Order`.",
)
PROTOBUF_DESCRIPTOR_FILE = FORMATS.text(
    "flink.deserializer.protobuf.descriptor.file",
    "A file of descriptors with the message: `protoc --include_imports --descriptor_set_out=FILE`. "
    "Either this or `flink.deserializer.protobuf.module`.",
)
PROTOBUF_MODULE = FORMATS.text(
    "flink.deserializer.protobuf.module", "The Python module that protoc generated, for example `orders_pb2`."
)
