"""GlueSchemas: schema versions of the AWS Glue Schema Registry, each fetched once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any
from uuid import UUID

from aiobotocore.config import AioConfig

from recordpublisher.publishers.errors import FatalKinesisError, TransientError
from recordpublisher.publishers.kinesis import region_of, session_with_credentials, translate_errors
from recordpublisher.publishers.kinesis.error_mapping import reject_malformed
from recordpublisher.publishers.properties.groups.access import REQUEST_TIMEOUT
from recordpublisher.publishers.properties.groups.formats import GLUE_ENDPOINT
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.retry import RetryPolicy, call_with_retries

log = logging.getLogger("recordpublisher.deserializers")
Decode = Callable[[bytes], Any]
DecoderFor = Callable[[str, str], Awaitable[Decode]]
"""Of a format and a definition. Raises: ValueError for what it cannot use."""
OpenClient = Callable[[], AbstractAsyncContextManager[Any]]
MAX_SCHEMAS = 1_000
"""Kept at a time. Above it the oldest are forgotten, and fetched again when a record needs one."""
RETRIES = RetryPolicy(max_retries=10, base_ms=200, max_ms=5_000, exponent=1.5)
_UNKNOWN = ("EntityNotFoundException", "InvalidInputException")


def glue_clients(properties: Properties) -> OpenClient:
    """Opens clients of Glue. Raises: ConfigurationError for wrong credentials or no region."""
    region = region_of(properties)
    session = session_with_credentials(properties, region)
    config = AioConfig(
        read_timeout=properties.value(REQUEST_TIMEOUT) / 1000,
        retries={"total_max_attempts": 1, "mode": "standard"},  # `RETRIES` decides
        warm_up_loader_caches=True,  # reads the service model off the loop
    )
    return partial(
        session.create_client,
        "glue",
        region_name=region,
        endpoint_url=properties.value(GLUE_ENDPOINT),
        config=config,
    )


class GlueSchemas:
    """Owns a function for each known version that decodes what was written with it. `decoder_for` makes it."""

    def __init__(self, open_client: OpenClient, decoder_for: DecoderFor) -> None:
        self._open_client = open_client
        self._decoder_for = decoder_for
        self._decoders: dict[bytes, Decode] = {}
        self._fetching = asyncio.Lock()

    def decoder(self, version: bytes) -> Decode:
        """Of a version for which `fetch` was awaited just before."""
        return self._decoders[version]

    async def fetch(self, versions: Collection[bytes]) -> None:
        """Fetch those that are not known. A version that does not exist gets a decoder that raises ValueError.

        Raises: FatalKinesisError, for example without the right; RetriesExhaustedError; ConfigurationError without the extra `glue`.
        """
        while missing := [version for version in versions if version not in self._decoders]:
            async with self._fetching:  # what another shard has fetched meanwhile is not fetched again
                await self._fetch_all([version for version in missing if version not in self._decoders])
                self._forget_oldest(versions)

    async def _fetch_all(self, versions: Collection[bytes]) -> None:
        if not versions:
            return
        async with self._open_client() as client:  # for this fetch only: new versions are rare
            for version in versions:
                self._decoders[version] = await self._fetch(client, str(UUID(bytes=version)))

    async def _fetch(self, client: Any, version: str) -> Decode:
        async def get() -> tuple[str, str]:
            with translate_errors("GetSchemaVersion"):
                response = await client.get_schema_version(SchemaVersionId=version)
            with reject_malformed("GetSchemaVersion"):
                return response["DataFormat"], response["SchemaDefinition"]

        try:
            found = await call_with_retries(get, RETRIES, on_retry=_log_retry)
        except FatalKinesisError as error:
            if error.code not in _UNKNOWN:
                raise
            return _refuse(f"the schema version {version} is not in the registry: {error}")
        try:
            return await self._decoder_for(*found)
        except ValueError as error:
            return _refuse(f"the schema version {version} cannot be used: {error}")

    def _forget_oldest(self, needed: Collection[bytes]) -> None:
        surplus = len(self._decoders) - MAX_SCHEMAS
        for version in [each for each in self._decoders if each not in needed][: max(0, surplus)]:
            del self._decoders[version]


def _refuse(words: str) -> Decode:
    def decode(payload: bytes) -> Any:
        raise ValueError(words)

    return decode


def _log_retry(error: TransientError) -> None:
    log.warning("%s; retrying", error)
