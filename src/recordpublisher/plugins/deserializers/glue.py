"""Decodes records that the serialisers of the AWS Glue Schema Registry wrote. Needs the extra `glue`."""

import asyncio
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis.sdk.aws_service import AwsService
from recordpublisher.publishers.properties.groups.job import COMPRESSION, GLUE_ENDPOINT, MAX_DECOMPRESSED_BYTES
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch

from .avro import decode, parse_schema, schema_of
from .glue_protobuf import message_decoder
from .glue_schemas import Decode, GlueSchemas

HEADER_BYTES = 18
"""The version of the header, the compression, and the id of the schema version (a UUID)."""
HEADER_VERSION, UNCOMPRESSED, ZLIB = 3, 0, 5
_VERSION = slice(2, HEADER_BYTES)


class GlueDeserializer:
    """Decodes Avro, JSON and Protobuf with the schema version that each record names. Each version is fetched from the registry once.

    If the properties have a schema (`flink.deserializer.avro.schema`), Avro records are resolved to it.
    """

    def __init__(self, properties: Properties) -> None:
        """Read the properties. Raises: ConfigurationError if a compression is set, or the Avro schema is invalid."""
        compression = properties.value(COMPRESSION)
        if compression != "NONE":
            reason = "the header of each record says whether it is compressed"
            raise ConfigurationError(COMPRESSION.key, compression, "NONE with flink.deserializer=glue", reason=reason)
        self._reader_schema = schema_of(properties)
        self.decompressor = GlueDecompressor(properties.value(MAX_DECOMPRESSED_BYTES))
        """Used by the job too, which decompresses as many payloads at a time as its memory allows."""
        self._schemas = GlueSchemas(AwsService("glue", properties, properties.value(GLUE_ENDPOINT)), self._decoder_for)

    async def prepare(self, batch: RecordBatch) -> None:
        """Fetch the schemas that the batch names and that are not known yet.

        Raises: FatalKinesisError if the registry refuses the call; RetriesExhaustedError if calls keep failing.
        """
        await self._schemas.fetch({data[_VERSION] for data in batch.data if _has_header(data)}, batch)

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Return the decoded values. Raises: ValueError if a record has no header, or does not fit its schema."""
        return list(map(self._value, batch.data))

    def _value(self, data: bytes) -> Any:
        if not _has_header(data):
            raise ValueError(
                f"it does not begin with the header of the Glue Schema Registry: {data[:HEADER_BYTES].hex()}"
            )
        decode = self._schemas.decoder(data[_VERSION])
        return decode(self.decompressor.decompress([data])[0][HEADER_BYTES:])

    async def _decoder_for(self, data_format: str, definition: str) -> Decode:
        if data_format == "AVRO":
            return partial(decode, schema=parse_schema(definition), reader_schema=self._reader_schema)
        if data_format == "JSON":
            return msgspec.json.Decoder().decode
        if data_format == "PROTOBUF":
            return await asyncio.to_thread(message_decoder, definition)
        raise ValueError(f"its format is {data_format}, not AVRO, JSON or PROTOBUF")


class GlueDecompressor:
    """Decompresses the payloads whose header says that they are compressed."""

    replaces_data = False

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    def decompress(self, payloads: Sequence[bytes]) -> list[bytes]:
        """Return the payloads decompressed, each with a header that says so. A payload that is not compressed stays as it is.

        Raises: ValueError if the compressed data of a payload is invalid, truncated, or too large.
        """
        return [self._plain(data) if _has_header(data) and data[1] == ZLIB else data for data in payloads]

    def _plain(self, data: bytes) -> bytes:
        inflater = zlib.decompressobj()
        try:
            plain = inflater.decompress(data[HEADER_BYTES:], self._max_bytes + 1)
        except zlib.error as error:
            raise ValueError(f"it is not compressed as its header says: {error}") from error
        if len(plain) > self._max_bytes:
            raise ValueError(f"it has more than {self._max_bytes} bytes decompressed ({MAX_DECOMPRESSED_BYTES.key})")
        if not inflater.eof:
            raise ValueError("its compressed data ends too early")
        return bytes((HEADER_VERSION, UNCOMPRESSED)) + data[_VERSION] + plain


def _has_header(data: bytes) -> bool:
    return len(data) >= HEADER_BYTES and data[0] == HEADER_VERSION and data[1] in (UNCOMPRESSED, ZLIB)
