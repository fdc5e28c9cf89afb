"""StagedObjects: hidden objects of S3, Google or Azure, and their copies under the final names when an entry has committed them (S6)."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recordpublisher.fetcher.committing_sink import Leftover
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.plugins.stores.obstore_client import ObjectLocation, as_state_errors
from recordpublisher.plugins.stores.remote_stores import side_by_side
from recordpublisher.plugins.stores.s3_store import SCHEMES
from recordpublisher.publishers.properties.properties import Properties

from ..unfinished_uploads import UnfinishedUploads
from .staged_files import ENTRIES, HIDDEN, STAGED, Files, StagedFile, other_name

_STAGED = f"{HIDDEN}/{STAGED}/"
_AT_ONCE = 16
"""Requests for files of one commit."""


class StagedObjects:
    """The objects below a location, and the entries that commit them; as `StagedFiles`. Owns the client.

    A file is written on the local disk, then uploaded: in parts, if it is large. Its final name gets it by a copy on the server.
    """

    def __init__(self, location: str, key: str, properties: Properties) -> None:
        """`key` is the property that has the location. Raises: ConfigurationError, also without the extra."""
        self.place = location.rstrip("/")
        self.entries = conditional_store_of(f"{self.place}/{HIDDEN}/{ENTRIES}", key, properties)
        parts = urlsplit(self.place)
        uri = f"s3://{parts.netloc}{parts.path}" if parts.scheme in SCHEMES else self.place
        is_s3 = parts.scheme in SCHEMES
        self._uploads = UnfinishedUploads(self.place, properties) if is_s3 else None
        self._objects = ObjectLocation(uri, key, properties)

    @property
    def _client(self) -> Any:
        return self._objects.client

    async def open(self) -> None:
        """Nothing: there are no folders."""

    async def why_not_writable(self) -> str | None:
        """Only a write tells."""
        return None

    async def stage(self, life: str, number: int, files: Files) -> tuple[list[StagedFile], int]:
        """Upload hidden objects, and return where each one is and its name; and their bytes."""
        sizes: list[int] = []
        staged = [(f"{_STAGED}{life}/{number}-{index}", name) for index, name in enumerate(files)]
        with tempfile.TemporaryDirectory(prefix="recordpublisher-") as folder:

            async def upload(index: int, name: str) -> None:
                file = Path(folder) / str(index)
                await asyncio.to_thread(files[name], file)
                await self._client.put_async(staged[index][0], file)
                sizes.append(file.stat().st_size)
                file.unlink()

            await self._each(upload, enumerate(files))
        return staged, sum(sizes)

    async def publish(self, files: Iterable[StagedFile]) -> list[StagedFile]:
        """Copy what is still staged to its final name, then delete it; another process may do the same meanwhile. Another object of the
        name stays: then the copy has another name. Returns those that have neither name."""
        missing: list[StagedFile] = []

        async def copy(hidden: str, name: str) -> None:
            try:
                is_taken = await self._has_other_content(hidden, name)
                await self._client.copy_async(hidden, other_name(hidden, name) if is_taken else name)
            except FileNotFoundError:
                try:
                    await self._client.head_async(name)
                except FileNotFoundError:
                    missing.append((hidden, name))
                return
            await self._delete(hidden)

        await self._each(copy, files)
        return missing

    async def discard(self, has_ended: Callable[[str], bool], kept: Collection[str]) -> None:
        """Delete what these lives have staged, but for `kept`."""
        await self.remove([left for left in await self._staged(kept) if has_ended(left.life)])

    async def leftovers(self, kept: Collection[str]) -> list[Leftover]:
        """What any life has staged, but for `kept`, and in S3 uploads that did not end."""
        uploads = [] if self._uploads is None else await self._uploads.found(_STAGED)
        return await self._staged(kept) + uploads

    async def remove(self, leftovers: Iterable[Leftover]) -> None:
        """Delete them."""
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
        """Return whether another object has the name. Raises: FileNotFoundError if what was staged is gone."""
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
        """A few calls at a time; the first error ends the others."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def limited(given: Iterable[Any]) -> None:
            async with slots:
                await self._objects.refresh()  # one that had to wait may find other credentials
                await call(*given)

        with as_state_errors(self.place):
            await side_by_side(map(limited, arguments))
