"""Decodes records that the serializers of the AWS Glue Schema Registry have written. Needs the extra `glue`."""

import asyncio
import logging
import subprocess
import sys
import tempfile
import weakref
import zlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from recordpublisher.install_commands import install_command
from recordpublisher.publishers.errors import (
    ConfigurationError,
    FatalKinesisError,
    RetriesExhaustedError,
    ThrottledError,
)
from recordpublisher.publishers.kinesis.sdk.aws_service import AwsService
from recordpublisher.publishers.properties.job_properties import COMPRESSION, GLUE_ENDPOINT, MAX_DECOMPRESSED_BYTES
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.retry import RetryPolicy, call_with_retries

from .avro import decode, parse_schema, schema_of
from .protobuf import pool_of_descriptors

log = logging.getLogger("recordpublisher.deserializers")
HEADER_BYTES = 18
"""The length of a record's header: its version, the compression, and the id of the schema version (a UUID)."""
HEADER_VERSION, UNCOMPRESSED, ZLIB = 3, 0, 5
_VERSION = slice(2, HEADER_BYTES)
MAX_SCHEMAS = 1_000
"""Most schemas that are kept. Above this number, the oldest that no batch needs are dropped. They are fetched again when needed."""
MOST_UNKNOWN, PAUSE_SECONDS = 100, 1.0
"""If records have named more than `MOST_UNKNOWN` versions that do not exist, each call to the registry waits `PAUSE_SECONDS` first.

Otherwise a producer could use up the account's calls.
"""
REFUSED_SECONDS = 60.0
"""After this time, a version that the registry did not have is requested again. It may have been registered since."""
RETRIES = RetryPolicy(max_retries=10, base_ms=200, max_ms=5_000, exponent=1.5)
_UNKNOWN = ("EntityNotFoundException", "InvalidInputException")
MAX_COMPILE_SECONDS = 60
_FILE = "schema.proto"
_LARGEST_INDEX_BYTES = 5
"""The length of an unsigned 32-bit number as a Protobuf varint."""
Decode = Callable[[bytes], Any]
DecoderFor = Callable[[str, str], Awaitable[Decode]]
"""Returns the decoder for a data format and a schema definition. Raises: ValueError if there is no decoder for them."""


class GlueDeserializer:
    """Decodes Avro, JSON and Protobuf with the schema version that each record names. Each version is fetched from the registry once.

    If the properties have a schema (`flink.deserializer.avro.schema`), Avro records are resolved to it.
    """

    def __init__(self, properties: Properties) -> None:
        """Read the properties. Raises: ConfigurationError if a compression is set, or the Avro schema is invalid."""
        compression = properties.value(COMPRESSION)
        if compression != "NONE":
            reason = "the header of each record says whether it is compressed"
            raise ConfigurationError.conflict(
                COMPRESSION.key, "flink.deserializer=glue", value=compression, reason=reason
            )
        self._reader_schema = schema_of(properties)
        self.decompressor = GlueDecompressor(properties.value(MAX_DECOMPRESSED_BYTES))
        """Decompresses payloads. The job uses it before `values`, for as many payloads at a time as its memory allows."""
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
                f"the payload does not begin with the header of the Glue Schema Registry: {data[:HEADER_BYTES].hex()}"
            )
        decode = self._schemas.decoder(data[_VERSION])
        # `decompress` does nothing if the job has decompressed the payload already, because the header then says so.
        return decode(self.decompressor.decompress([data])[0][HEADER_BYTES:])

    async def _decoder_for(self, data_format: str, definition: str) -> Decode:
        if data_format == "AVRO":
            return partial(decode, schema=parse_schema(definition), reader_schema=self._reader_schema)
        if data_format == "JSON":
            return msgspec.json.Decoder().decode
        if data_format == "PROTOBUF":
            return await asyncio.to_thread(message_decoder, definition)
        raise ValueError(f"the format of the schema is {data_format}, but only AVRO, JSON and PROTOBUF can be decoded")


class GlueDecompressor:
    """Decompresses the payloads whose header says that they are compressed."""

    replaces_data = False

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes

    def decompress(self, payloads: Sequence[bytes]) -> list[bytes]:
        """Return the payloads decompressed, each with the header of an uncompressed payload. Uncompressed payloads do not change.

        Raises: ValueError if the compressed data of a payload is invalid, truncated, or too large.
        """
        return [self._plain(data) if _has_header(data) and data[1] == ZLIB else data for data in payloads]

    def _plain(self, data: bytes) -> bytes:
        inflater = zlib.decompressobj()
        try:
            plain = inflater.decompress(data[HEADER_BYTES:], self._max_bytes + 1)
        except zlib.error as error:
            raise ValueError(f"the payload is not compressed as its header says: {error}") from error
        # One byte more than the limit is inflated at most, whatever the payload claims.
        if len(plain) > self._max_bytes:
            raise ValueError(
                f"the decompressed payload has more than {self._max_bytes} bytes ({MAX_DECOMPRESSED_BYTES.key})"
            )
        if not inflater.eof:
            raise ValueError("the compressed data of the payload ends too early")
        return bytes((HEADER_VERSION, UNCOMPRESSED)) + data[_VERSION] + plain


def _has_header(data: bytes) -> bool:
    return len(data) >= HEADER_BYTES and data[0] == HEADER_VERSION and data[1] in (UNCOMPRESSED, ZLIB)


class GlueSchemas:
    """Fetches each schema version once, and keeps its decoder.

    `decoder_for`: makes the decoder of a version.
    """

    def __init__(self, glue: AwsService, decoder_for: DecoderFor) -> None:
        self._glue = glue
        self._decoder_for = decoder_for
        self._decoders: dict[bytes, Decode] = {}
        self._needed: dict[int, Collection[bytes]] = {}
        """The versions that each batch needs, by `id(batch)`, for as long as the batch exists."""
        self._refused_at: dict[bytes, float] = {}
        """When the registry said that it does not have a version (seconds of the event loop). Producers can name any number of them."""
        self._fetching: dict[bytes, asyncio.Lock] = {}
        self._users = 0
        """Number of `fetch` calls that fetch a version now."""

    def decoder(self, version: bytes) -> Decode:
        """Return the decoder of a version. `fetch` must have returned for a batch that needs this version."""
        return self._decoders[version]

    async def fetch(self, versions: Collection[bytes], batch: object) -> None:
        """Fetch the versions that are not known, and keep their decoders for as long as `batch` exists.

        A version that does not exist has a decoder that raises ValueError. After a minute, the next batch that names this version fetches
        it again.

        Raises: FatalKinesisError if the registry refuses the call, for example because a permission is missing; RetriesExhaustedError if
        calls keep failing; ConfigurationError if the extra `glue` is missing.
        """
        self._needed[id(batch)] = versions
        weakref.finalize(batch, self._needed.pop, id(batch), None).atexit = False
        missing = [version for version in versions if not self._is_known(version)]
        while missing:
            self._users += 1
            try:
                for version in missing:
                    await self._fetch_once(version)
            finally:
                self._users -= 1
                if not self._users:
                    await self._glue.close()  # New versions are rare, so an open connection would be idle.
            self._forget_oldest()
            missing = [version for version in versions if version not in self._decoders]

    async def _fetch_once(self, version: bytes) -> None:
        """Fetch a version if it is not known. If another `fetch` is fetching it, wait for that instead."""
        lock = self._fetching.setdefault(version, asyncio.Lock())
        try:
            async with lock:
                if not self._is_known(version):
                    # Without this pause, a producer could use up the account's calls.
                    if len(self._refused_at) > MOST_UNKNOWN:
                        await asyncio.sleep(PAUSE_SECONDS)
                    self._decoders[version] = await self._fetch(version)
        finally:
            self._fetching.pop(version, None)

    def _is_known(self, version: bytes) -> bool:
        refused_at = self._refused_at.get(version)
        is_old = refused_at is not None and asyncio.get_running_loop().time() - refused_at > REFUSED_SECONDS
        return version in self._decoders and not is_old

    async def _fetch(self, key: bytes) -> Decode:
        version = str(UUID(bytes=key))

        async def get() -> tuple[str, str]:
            return await self._glue.call("GetSchemaVersion", _format_and_definition, SchemaVersionId=version)

        try:
            found = await _call_while_throttled(get)
        except FatalKinesisError as error:
            if error.code not in _UNKNOWN:
                raise  # Without access, no record can be decoded.
            self._refused_at[key] = asyncio.get_running_loop().time()
            if len(self._refused_at) == MOST_UNKNOWN + 1:
                log.warning(
                    "records name %d schema versions that the registry does not have. From now on each fetch of another version is "
                    "delayed by %g s, so that the account's calls to the registry are not used up",
                    len(self._refused_at),
                    PAUSE_SECONDS,
                )
            return _refusing(f"the schema version {version} is not in the registry: {error}")
        self._refused_at.pop(key, None)
        try:
            return await self._decoder_for(*found)
        except ValueError as error:
            return _refusing(f"the schema version {version} cannot be used: {error}")

    def _forget_oldest(self) -> None:
        surplus = len(self._decoders) - MAX_SCHEMAS
        if surplus > 0:
            # The loop needs a copy, because batches may end while it waits.
            needed = set[bytes]().union(*list(self._needed.values()))
            for version in [known for known in self._decoders if known not in needed][:surplus]:
                del self._decoders[version]
                self._refused_at.pop(version, None)


async def _call_while_throttled(get: Callable[[], Awaitable[tuple[str, str]]]) -> tuple[str, str]:
    """Call `get` until the registry no longer throttles the call, and return the result.

    Throttling does not end the job, because any producer could use up the account's calls.
    """
    while True:
        try:
            return await call_with_retries(get, RETRIES, service="the Glue Schema Registry")
        except RetriesExhaustedError as error:
            if not isinstance(error.__cause__, ThrottledError):
                raise


def _format_and_definition(response: dict[str, Any]) -> tuple[str, str]:
    return response["DataFormat"], response["SchemaDefinition"]


def _refusing(words: str) -> Decode:
    def decode(payload: bytes) -> Any:
        raise ValueError(words)

    return decode


def message_decoder(definition: str) -> Callable[[bytes], Any]:
    """Return a function that parses the output of the registry's Protobuf serializer: the index of the message, then the message.

    The compiler runs as a separate process, for some 100 ms. Call this function in a thread.

    Raises: ValueError if the definition cannot be compiled; ConfigurationError if the extra `glue` is missing.
    """
    descriptor = pool_of_descriptors(_compile(definition)).FindFileByName(_FILE)
    messages = sorted(_with_nested(descriptor.message_types_by_name.values()), key=lambda each: str(each.full_name))
    parsers = [message_factory.GetMessageClass(each).FromString for each in messages]

    def decode(payload: bytes) -> Any:
        index, start = _index(payload)
        if index >= len(parsers):
            raise ValueError(
                f"the payload names message {index} (from 0), but the number of messages in its schema is {len(parsers)}"
            )
        try:
            return parsers[index](payload[start:])
        except DecodeError as error:
            raise ValueError(f"the payload is not a message {messages[index].full_name}: {error}") from error

    return decode


def _with_nested(messages: Iterable[Any]) -> Iterator[Any]:
    """Yield the messages at every depth, including the entries of maps. The Java serializer counts all of these."""
    for message in messages:
        yield message
        yield from _with_nested(message.nested_types)


def _index(payload: bytes) -> tuple[int, int]:
    """Return the index of the message type in the schema, and the offset in `payload` at which the message begins (bytes).

    The payload begins with the index, as an integer of variable length. Raises: ValueError if it does not.
    """
    index = 0
    for place, byte in enumerate(payload[:_LARGEST_INDEX_BYTES]):
        index |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return index, place + 1
    raise ValueError("the payload does not begin with the index of a message")


def _reasons(printed: str) -> str:
    """Return the errors in the compiler's output, without its log and its warnings."""
    return "; ".join(line for line in printed.splitlines() if line.startswith(_FILE) and ": warning: " not in line)


def _compile(definition: str) -> bytes:
    if find_spec("grpc_tools") is None:
        reason = f"a record has a Protobuf schema, which needs the extra: {install_command('glue')}"
        raise ConfigurationError("flink.deserializer", "glue", "glue with the extra 'glue'", reason=reason)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, _FILE).write_text(definition, encoding="utf-8")
        to = Path(folder, "descriptors")
        options = ["--proto_path=.", "--include_imports", f"--descriptor_set_out={to}", _FILE]
        try:
            # Run as `-m grpc_tools.protoc`, which itself adds the path of google/protobuf/*.proto.
            subprocess.run(
                [sys.executable, "-m", "grpc_tools.protoc", *options],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=MAX_COMPILE_SECONDS,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            raise ValueError(
                _reasons(error.stderr) or f"the Protobuf compiler ended with exit code {error.returncode}"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"the Protobuf schema was not compiled within {MAX_COMPILE_SECONDS} s") from error
        return to.read_bytes()
