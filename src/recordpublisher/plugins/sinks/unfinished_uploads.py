"""Finds and aborts multipart uploads to S3 that were never completed. They are billed, and no listing of objects shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from recordpublisher.fetcher.sink import Leftover
from recordpublisher.publishers.properties.properties import Properties

from ..stores.aws_store_calls import AwsStoreCalls, NotFoundError


class UnfinishedUploads:
    """The unfinished multipart uploads below a location in S3.

    Each call opens a client, because only the command that removes leftovers makes these calls.

    - `location`: `s3://bucket/prefix`.
    """

    def __init__(self, location: str, properties: Properties) -> None:
        self._location, self._properties = location, properties
        parts = urlsplit(location)
        self._bucket, self._prefix = parts.netloc, f"{parts.path.strip('/')}/".lstrip("/")

    async def find(self, folder: str) -> list[Leftover]:
        """Return the unfinished uploads of the objects `folder/<life>/...`, in which `<life>` is the name of a run of a worker process.

        - `folder`: the folder relative to the location; it ends with a slash.

        Raises: StoreUnavailableError if a call fails and may succeed later; StateError if no retry can help.
        """
        service = AwsStoreCalls("s3", self._location, self._properties)

        def page(response: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
            after = {"KeyMarker": response.get("NextKeyMarker"), "UploadIdMarker": response.get("NextUploadIdMarker")}
            return list(response.get("Uploads", ())), after if response.get("IsTruncated") else None

        async def size(upload: dict[str, Any]) -> int:
            def parts(response: dict[str, Any]) -> tuple[int, dict[str, Any] | None]:
                after = {"PartNumberMarker": response.get("NextPartNumberMarker")}
                return sum(part["Size"] for part in response.get("Parts", ())), (
                    after if response.get("IsTruncated") else None
                )

            where = {"Bucket": self._bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
            try:
                return sum([each async for each in service.pages("ListParts", parts, **where)])
            except NotFoundError:  # The upload was completed since it was listed.
                return 0

        try:
            where = {"Bucket": self._bucket, "Prefix": self._prefix + folder}
            uploads = [each async for found in service.pages("ListMultipartUploads", page, **where) for each in found]
            return [
                Leftover(
                    name := upload["Key"].removeprefix(self._prefix),
                    await size(upload),
                    upload["Initiated"].timestamp(),
                    name.removeprefix(folder).partition("/")[0],
                    upload["UploadId"],
                )
                for upload in uploads
            ]
        finally:
            await service.close()

    async def abort(self, leftovers: Iterable[Leftover]) -> None:
        """Abort the leftovers that are uploads, and ignore the others.

        Raises: StoreUnavailableError if a call fails and may succeed later; StateError if no retry can help.
        """
        service = AwsStoreCalls("s3", self._location, self._properties)
        try:
            for left in leftovers:
                if left.upload is not None:
                    where = {"Bucket": self._bucket, "Key": self._prefix + left.name, "UploadId": left.upload}
                    try:
                        await service.call("AbortMultipartUpload", lambda _: None, **where)
                    except NotFoundError:
                        continue
        finally:
            await service.close()
