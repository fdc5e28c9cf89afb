"""UnfinishedUploads: uploads in parts to S3 that nobody has completed: they are billed, and no listing of objects shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from recordpublisher.fetcher.committing_sink import Leftover
from recordpublisher.plugins.stores.aws_store_service import NotFoundError, StoreService
from recordpublisher.publishers.properties.properties import Properties


class UnfinishedUploads:
    """Those below a location in S3. Opens a client for each call: only the command that removes leftovers has some."""

    def __init__(self, location: str, properties: Properties) -> None:
        """`location`: `s3://bucket/prefix`."""
        self._location, self._properties = location, properties
        parts = urlsplit(location)
        self._bucket, self._prefix = parts.netloc, f"{parts.path.strip('/')}/".lstrip("/")

    async def found(self, folder: str) -> list[Leftover]:
        """Those in `folder/<life>/`, which ends with a slash. Raises: StoreUnavailableError, StateError."""
        service = StoreService("s3", self._location, self._properties)

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
            except NotFoundError:  # completed meanwhile
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
        """End those of them that are uploads. Raises: StoreUnavailableError, StateError."""
        service = StoreService("s3", self._location, self._properties)
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
