"""Uploads hidden objects to S3, Google or Azure, and gives them their final names when a worker's stored positions name them."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from recordpublisher.fetcher.sink import Leftover
from recordpublisher.plugins.stores.back_ends import S3, back_end_of
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.plugins.stores.object_store import side_by_side
from recordpublisher.plugins.stores.obstore_client import ObjectLocation, as_state_errors
from recordpublisher.publishers.errors import RecordPublisherError, StateError
from recordpublisher.publishers.properties.properties import Properties

from ..archived_shards import HIDDEN, SHARDS
from ..unfinished_uploads import UnfinishedUploads
from .staged_files import DELTA_LOG, ENTRIES, IN_A_TABLE, STAGED, StagedFile, StagedItem, name_after_clash

_STAGED = f"{HIDDEN}/{STAGED}/"
_AT_ONCE = 16
"""Requests that run at the same time for the files of one commit."""


class StagedObjects:
    """Uploads, copies and deletes a sink's objects below a location, as `StagedFiles` does for files in a folder.

    A file is written to the local disk, then uploaded under a hidden name. A copy on the server gives the object its final name.

    - `key`: the property that has the location.

    Raises: ConfigurationError if the location is invalid, or if the extra of its store is not installed.
    """

    def __init__(self, location: str, key: str, properties: Properties) -> None:
        self.place = location.rstrip("/")
        self.entries = conditional_store_of(f"{self.place}/{HIDDEN}/{ENTRIES}", key, properties)
        self.shards = conditional_store_of(f"{self.place}/{SHARDS}", key, properties)
        back_end = back_end_of(location)
        self._uploads = UnfinishedUploads(self.place, properties) if back_end is S3 else None
        self._objects = ObjectLocation(back_end.uri_of(self.place), key, properties)

    @property
    def _client(self) -> Any:
        return self._objects.client

    async def open(self) -> None:
        """Do nothing, because object stores have no folders."""

    async def why_not_writable(self) -> str | None:
        """Return why files must not be written to this location, or None. Only a write would show that a permission is missing."""
        # Errors are ignored: a user who may not list objects may still write them, and later calls report an outage.
        with suppress(RecordPublisherError), as_state_errors(self.place):
            await self._objects.refresh()
            for folder, suffix in ((DELTA_LOG, ".json"), ("metadata", ".metadata.json")):
                found = await self._client.list_with_delimiter_async(f"{folder}/")
                if any(each["path"].endswith(suffix) for each in found["objects"]):
                    return IN_A_TABLE
        return None

    async def stage(self, life: str, number: int, files: StagedItem) -> tuple[list[StagedFile], int]:
        """Upload the files as hidden objects. Return the hidden path and the name of each file, and the bytes of all files.

        The hidden paths contain `life`, the name of this run of the worker, and `number`, the number of the commit.
        Raises: StoreUnavailableError if an upload fails and may succeed later; StateError if a file cannot be written to the local disk,
        or can never be uploaded.
        """
        sizes: list[int] = []
        staged = [(f"{_STAGED}{life}/{number}-{index}", name) for index, name in enumerate(files)]
        try:
            # After a failed upload or a cancellation, threads may still write here: errors of the removal must not replace that error.
            with tempfile.TemporaryDirectory(prefix="recordpublisher-", ignore_cleanup_errors=True) as folder:

                async def upload(index: int, name: str) -> None:
                    file = Path(folder) / str(index)
                    await asyncio.to_thread(files[name], file)
                    await self._client.put_async(staged[index][0], file)
                    sizes.append(file.stat().st_size)
                    file.unlink()

                await self._each(upload, enumerate(files))
        except OSError as error:
            raise StateError(f"files for {self.place} cannot be written to the local disk first: {error}") from error
        return staged, sum(sizes)

    async def publish(self, files: Iterable[StagedFile]) -> list[StagedFile]:
        """Copy the hidden objects to their final names, then delete the hidden objects.

        Return the files that have neither a hidden object nor a final one. Another process may do the same at the same time. If the final
        name is taken by an object with other content, the copy gets another name.
        """
        missing: list[StagedFile] = []

        async def copy(hidden: str, name: str) -> None:
            try:
                is_taken = await self._has_other_content(hidden, name)
                await self._client.copy_async(hidden, name_after_clash(hidden, name) if is_taken else name)
            except FileNotFoundError:
                try:
                    await self._client.head_async(name)
                except FileNotFoundError:
                    missing.append((hidden, name))
                return
            # Deleted only after the copy, so that the next start can copy it again if the process ends in between.
            await self._delete(hidden)

        await self._each(copy, files)
        return missing

    async def discard(self, has_ended: Callable[[str], bool], kept: Collection[str]) -> None:
        """Delete the hidden objects of worker runs that have ended, except `kept`."""
        await self.remove([left for left in await self._staged(kept) if has_ended(left.life)])

    async def leftovers(self, kept: Collection[str]) -> list[Leftover]:
        """Return the hidden objects of all runs, except `kept`; in S3 also uploads that were never completed."""
        uploads = [] if self._uploads is None else await self._uploads.find(_STAGED)
        return await self._staged(kept) + uploads

    async def remove(self, leftovers: Iterable[Leftover]) -> None:
        """Delete these objects, and abort these uploads."""
        leftovers = list(leftovers)
        if self._uploads is not None:
            await self._uploads.abort(leftovers)
        await self._each(self._delete, ((left.name,) for left in leftovers if left.upload is None))

    async def _staged(self, kept: Collection[str]) -> list[Leftover]:
        await self._objects.refresh()
        with as_state_errors(self.place):
            found = [meta async for chunk in self._client.list(_STAGED) for meta in chunk if meta["path"] not in kept]
        return [
            Leftover(
                meta["path"],
                meta["size"],
                meta["last_modified"].timestamp(),
                meta["path"].removeprefix(_STAGED).partition("/")[0],
            )
            for meta in found
        ]

    async def _has_other_content(self, hidden: str, name: str) -> bool:
        """Return whether the object `name` exists with other content than `hidden`. Raises: FileNotFoundError if `hidden` is gone."""
        staged = await self._client.head_async(hidden)
        try:
            there = await self._client.head_async(name)
            if there["size"] != staged["size"]:
                return True
            content = await (await self._client.get_async(name)).bytes_async()
        except FileNotFoundError:
            return False
        return bytes(content) != bytes(await (await self._client.get_async(hidden)).bytes_async())

    async def _delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            await self._client.delete_async(path)

    async def _each(self, call: Callable[..., Awaitable[None]], arguments: Iterable[Iterable[Any]]) -> None:
        """Make one call with each item of `arguments`, a few calls at a time. The first error ends the other calls."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def limited(given: Iterable[Any]) -> None:
            async with slots:
                await self._objects.refresh()  # The credentials may have changed while the call waited.
                await call(*given)

        with as_state_errors(self.place):
            await side_by_side(map(limited, arguments))
