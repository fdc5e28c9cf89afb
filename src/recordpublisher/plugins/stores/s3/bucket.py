"""Bucket: small objects below a prefix of S3, written only if they are what they were."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties, mask_passwords

from ..aws_client import AwsService, MissingError

ABSENT = ""
"""In the place of an ETag: there is no such object."""


class Bucket:
    """Owns the client of a bucket; `name`s are below the URI's prefix."""

    def __init__(self, uri: str, key: str, properties: Properties) -> None:
        """`key` is the property that the URI stood at. Raises: ConfigurationError."""
        parts = urlsplit(uri)
        if parts.scheme != "s3" or not parts.netloc or parts.query:
            raise ConfigurationError(key, mask_passwords(uri), "s3://bucket/prefix")
        self._bucket = parts.netloc
        self._prefix = parts.path.strip("/") + "/" if parts.path.strip("/") else ""
        self.service = AwsService("s3", uri, properties)

    async def get(self, name: str) -> tuple[bytes, str]:
        """The content and its ETag. Raises: MissingError, StateError."""
        answer = await self.service.call("GetObject", Bucket=self._bucket, Key=self._prefix + name)
        async with answer["Body"] as body:
            return await body.read(), answer["ETag"]

    async def find(self, name: str) -> tuple[bytes | None, str]:
        """As `get`; (None, ABSENT) when there is no such object."""
        try:
            return await self.get(name)
        except MissingError:
            return None, ABSENT

    async def put(self, name: str, content: bytes, expected: str) -> str:
        """Replace the object if its ETag is the expected one (ABSENT: only if there is none); answers the new ETag.

        Raises: RefusedError, StateError.
        """
        condition = {"IfMatch": expected} if expected else {"IfNoneMatch": "*"}
        answer = await self.service.call(
            "PutObject", Bucket=self._bucket, Key=self._prefix + name, Body=content, **condition
        )
        return str(answer["ETag"])

    async def delete(self, name: str) -> None:
        """Forget an object."""
        await self.service.call("DeleteObject", Bucket=self._bucket, Key=self._prefix + name)

    async def names(self, beginning: str) -> AsyncIterator[str]:
        """The names that begin so, sorted."""
        token: dict[str, str] = {}
        while True:
            answer = await self.service.call(
                "ListObjectsV2", Bucket=self._bucket, Prefix=self._prefix + beginning, **token
            )
            for entry in answer.get("Contents", ()):
                yield entry["Key"][len(self._prefix) :]
            if not answer.get("IsTruncated"):
                return
            token = {"ContinuationToken": answer["NextContinuationToken"]}
