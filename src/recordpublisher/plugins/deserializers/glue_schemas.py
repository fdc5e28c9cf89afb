"""Fetches schema versions of the AWS Glue Schema Registry, each once."""

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Collection
from typing import Any
from uuid import UUID

from recordpublisher.publishers.errors import FatalKinesisError, RetriesExhaustedError, ThrottledError
from recordpublisher.publishers.kinesis.sdk.aws_service import AwsService
from recordpublisher.publishers.retry import RetryPolicy, call_with_retries

log = logging.getLogger("recordpublisher.deserializers")
Decode = Callable[[bytes], Any]
DecoderFor = Callable[[str, str], Awaitable[Decode]]
"""Returns the decoder for a data format and a schema definition. Raises: ValueError if it cannot use them."""
MAX_SCHEMAS = 1_000
"""Most schemas that are kept. Beyond it, the oldest that no batch needs are forgotten, and fetched again when a record needs one."""
MOST_UNKNOWN, PAUSE_SECONDS = 100, 1.0
"""If more than this many versions do not exist, there is a pause before each call, so that a producer cannot use up the account's calls."""
REFUSED_SECONDS = 60.0
"""A version that the registry did not have is requested again after this time, because it may have been registered since."""
RETRIES = RetryPolicy(max_retries=10, base_ms=200, max_ms=5_000, exponent=1.5)
_UNKNOWN = ("EntityNotFoundException", "InvalidInputException")


class GlueSchemas:
    """Owns a decoder for each known schema version. `decoder_for` makes the decoder of a version."""

    def __init__(self, glue: AwsService, decoder_for: DecoderFor) -> None:
        self._glue = glue
        self._decoder_for = decoder_for
        self._decoders: dict[bytes, Decode] = {}
        self._needed: dict[int, Collection[bytes]] = {}
        """The versions that each batch needs, by the `id` of the batch, for as long as the batch exists."""
        self._refused_at: dict[bytes, float] = {}
        """When the registry did not have a version (seconds of the loop). A producer can name any number of such versions."""
        self._fetching: dict[bytes, asyncio.Lock] = {}
        self._users = 0
        """Number of shards that fetch a version now."""

    def decoder(self, version: bytes) -> Decode:
        """Return the decoder of a version. `fetch` must have been awaited for the batch that needs it."""
        return self._decoders[version]

    async def fetch(self, versions: Collection[bytes], batch: object) -> None:
        """Fetch the versions that are not known. A version that does not exist gets a decoder that raises ValueError, for a minute.

        The versions stay known for as long as `batch` exists, because it may be decoded in parts, with fetches of other shards in between.

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
                    await self._glue.close()  # new versions are rare
            self._forget_oldest()
            missing = [version for version in versions if version not in self._decoders]

    async def _fetch_once(self, version: bytes) -> None:
        """Fetch a version unless it is known, or wait if another shard is fetching it. Fetches of other versions are not waited for."""
        lock = self._fetching.setdefault(version, asyncio.Lock())
        try:
            async with lock:
                if not self._is_known(version):
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
                raise
            self._refused_at[key] = asyncio.get_running_loop().time()
            if len(self._refused_at) == MOST_UNKNOWN + 1:
                log.warning(
                    "records name %d schema versions that the registry does not have: it is asked slowly now",
                    len(self._refused_at),
                )
            return _refuse(f"the schema version {version} is not in the registry: {error}")
        self._refused_at.pop(key, None)
        try:
            return await self._decoder_for(*found)
        except ValueError as error:
            return _refuse(f"the schema version {version} cannot be used: {error}")

    def _forget_oldest(self) -> None:
        surplus = len(self._decoders) - MAX_SCHEMAS
        if surplus > 0:
            needed = set[bytes]().union(*list(self._needed.values()))  # a copy: batches may end in the meantime
            for version in [known for known in self._decoders if known not in needed][:surplus]:
                del self._decoders[version]
                self._refused_at.pop(version, None)


async def _call_while_throttled(get: Callable[[], Awaitable[tuple[str, str]]]) -> tuple[str, str]:
    """Return the registry's answer, and keep retrying while calls are throttled.

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


def _refuse(words: str) -> Decode:
    def decode(payload: bytes) -> Any:
        raise ValueError(words)

    return decode
