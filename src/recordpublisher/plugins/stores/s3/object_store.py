"""S3Objects: an object store below a prefix of S3; `If-None-Match: *` lets the first writer win."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from recordpublisher.publishers.properties.properties import Properties

from ..aws_client import RefusedError
from ..ports import ObjectStore
from .bucket import ABSENT, Bucket

DELETES_AT_ONCE = 16
PAUSE_SECONDS = 0.2


class S3Objects(ObjectStore):
    """Owns one client, made at the first call on the loop of that call."""

    look_seconds = 0.5

    def __init__(self, location: str, key: str, properties: Properties) -> None:
        """`key` is the property that the location stood at. Raises: ConfigurationError."""
        self._bucket = Bucket(location, key, properties)

    async def put_if_absent(self, name: str, content: bytes) -> bytes:
        """By a conditional put; one whose answer was lost finds its own content."""
        while True:
            try:
                await self._bucket.put(name, content, ABSENT)
            except RefusedError:
                stored, _ = await self._bucket.find(name)
                if stored is not None:  # a refusal because of a put at the same time, which then failed, is tried again
                    return stored
                await asyncio.sleep(random.random() * PAUSE_SECONDS)  # noqa: S311 - jitter
            else:
                return content

    async def put(self, name: str, content: bytes) -> None:
        """Put once; if it is there already, an earlier try came through."""
        await self.put_if_absent(name, content)

    async def get(self, name: str) -> bytes | None:
        """The object's content."""
        return (await self._bucket.find(name))[0]

    async def names(self, beginning: str) -> list[str]:
        """By listing."""
        return [name async for name in self._bucket.names(beginning)]

    async def delete(self, names: Iterable[str]) -> None:
        """Delete one by one, several at a time."""
        waiting = list(names)
        for start in range(0, len(waiting), DELETES_AT_ONCE):
            await asyncio.gather(*map(self._bucket.delete, waiting[start : start + DELETES_AT_ONCE]))

    async def close(self) -> None:
        """Close the client."""
        await self._bucket.service.close()
