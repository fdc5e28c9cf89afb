"""The conditional store in S3, with the AWS SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from recordpublisher.fetcher.conditional_store import (
    ConflictError,
    VersionedValue,
    new_version,
    pause_after_conflict,
)
from recordpublisher.publishers.errors import (
    ConfigurationError,
    StoreUnavailableError,
)
from recordpublisher.publishers.properties.properties import Properties

from .aws_store_calls import AwsStoreCalls, ConditionFailedError, NotFoundError
from .back_ends import S3, back_end_of
from .object_store import ConditionalObjects, refuse_credentials, refuse_query_and_fragment

T = TypeVar("T")
_WRITE_ATTEMPTS = 10
_WRITE_ID = "write-id"


class S3Store(ConditionalObjects):
    """Stores each value as an object of a bucket, below a prefix. The conditions of writes are `If-None-Match` and `If-Match`.

    - `key`: the property that contains the URI.

    Raises: ConfigurationError if the URI is not valid or has credentials, or if the AWS credentials are wrong.
    """

    actions: ClassVar = {
        "s3:GetObject": "reads",
        "s3:PutObject": "writes",
        "s3:ListBucket": "lists",
        "s3:DeleteObject": "deletes",
    }

    def __init__(self, uri: str, key: str, properties: Properties) -> None:
        refuse_query_and_fragment(key, uri, S3.form)
        parts = urlsplit(uri)
        if back_end_of(uri) is not S3 or not parts.netloc:
            raise ConfigurationError(key, uri, S3.form)
        refuse_credentials(key, uri, parts.netloc, S3.form)
        self.place = uri
        self._bucket = parts.netloc
        self._prefix = parts.path.strip("/") + "/" if parts.path.strip("/") else ""
        self._service = AwsStoreCalls("s3", uri, properties)

    async def get(self, name: str) -> VersionedValue | None:
        """Return the value and version of an object, or None if there is no object."""
        found = await self._get(name)
        return None if found is None else found[0]

    async def list_versions(self, prefix: str) -> dict[str, str]:
        """Return the ETag of each object whose name has the prefix, in the order of names."""
        return {name: version async for name, version in self._list_objects(prefix)}

    async def list_names(self, prefix: str, before: str | None = None) -> Sequence[str]:
        """Return the names with the prefix. If `before` is given, return only those that sort before it."""
        names = []
        async for name, _ in self._list_objects(prefix):
            if before is not None and name >= before:
                break
            names.append(name)
        return names

    async def close(self) -> None:
        """Close the client."""
        await self._service.close()

    async def _put(self, name: str, value: bytes, expected: str | None) -> str:
        write_id = new_version()
        condition = {"IfNoneMatch": "*"} if expected is None else {"IfMatch": expected}
        for attempt in range(_WRITE_ATTEMPTS):
            try:
                given = {"Body": value, "Metadata": {_WRITE_ID: write_id}, **condition}
                return await self._call("PutObject", name, lambda response: str(response["ETag"]), **given)
            except (ConditionFailedError, NotFoundError) as error:
                # S3 responds with NotFound to If-Match if there is no object, which means that another process has deleted it.
                found = await self._get(name)
                if found is not None and found[1] == write_id:
                    return found[0].version  # The SDK has repeated this write, whose first attempt had succeeded.
                current = None if found is None else found[0]
                if expected != (None if current is None else current.version):
                    raise ConflictError(self.place, name, current) from error
                # A concurrent write made S3 refuse this one, and then failed: nothing has changed, so try again.
            await pause_after_conflict(attempt)
        raise StoreUnavailableError(
            f"{name} in {self.place} could not be written: each of {_WRITE_ATTEMPTS} attempts collided with a write of another process"
        )

    async def _get(self, name: str) -> tuple[VersionedValue, str] | None:
        """Return an object, and the id of the write that stored it. Return None if there is no object."""
        try:
            return await self._call("GetObject", name, _value)
        except NotFoundError:
            return None

    async def _list_objects(self, prefix: str) -> AsyncIterator[tuple[str, str]]:
        def parse(response: dict[str, Any]) -> tuple[list[tuple[str, str]], dict[str, Any] | None]:
            token = {"ContinuationToken": response["NextContinuationToken"]} if response.get("IsTruncated") else None
            return [(entry["Key"][len(self._prefix) :], entry["ETag"]) for entry in response.get("Contents", ())], token

        where = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        async for page in self._service.pages("ListObjectsV2", parse, **where):
            for name, version in page:
                yield name, version

    async def _delete(self, name: str) -> None:
        await self._call("DeleteObject", name, lambda _: None)

    async def _call(self, api: str, name: str, parse: Callable[[dict[str, Any]], T], **parameters: Any) -> T:
        return await self._service.call(api, parse, Bucket=self._bucket, Key=self._prefix + name, **parameters)


def _value(response: dict[str, Any]) -> tuple[VersionedValue, str]:
    return VersionedValue(response["Body"], response["ETag"]), response.get("Metadata", {}).get(_WRITE_ID, "")
