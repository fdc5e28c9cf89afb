"""Holds the parts that the readers of all shards of an archive share: its files and documents, and the live stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from recordpublisher.fetcher.pipeline.suspension import SuspensionDetector
from recordpublisher.fetcher.shards.retention_check import RetentionCheck
from recordpublisher.fetcher.shards.shard_state import ShardState, latest
from recordpublisher.publishers.base import RecordPublisherFactory
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.reading import ARCHIVE_UNPROVEN
from recordpublisher.publishers.properties.groups.sinks import ARCHIVE
from recordpublisher.publishers.shards import OldestRecord, Shard, shard_from_json

from ..sinks.archived_shards import ShardDocument
from .catalogue import Catalogue
from .ranges import OrderOf, Place, place_of
from .rows import DecodeBuffer

DOCUMENT_SECONDS = 60.0
"""How long the documents are kept before they are read again. Where the files of a shard end they are always read again."""


class LiveLister(Protocol):
    """Lists the shards of the live stream. Finds the oldest record that a shard still has, and which records have expired."""

    async def list_shards(self, stream: str, after: str | None = None) -> list[Shard]:
        """Return every shard that the stream lists."""

    async def oldest_record(self, shard: Shard) -> OldestRecord | None:
        """Return the oldest record that the stream still has of a shard."""

    async def oldest_retained_ms(self, stream: str) -> int | None:
        """Return the arrival time before which the stream has dropped its records (epoch ms)."""


class Archive:
    """Owns what was last listed of the stream, and last read of the documents.

    - `live`, `lister`: the live publishers and the stream; None if the read ends with the archive.
    - `accepts_loss`: whether the job continues without records that are lost.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        live: RecordPublisherFactory | None,
        lister: LiveLister | None,
        order_of: OrderOf,
        clock: Clock,
        *,
        buffer_bytes: int,
        accepts_loss: bool,
        allows_unproven: bool,
    ) -> None:
        self.catalogue, self.live, self.order_of, self.clock = catalogue, live, order_of, clock
        self.accepts_loss, self.allows_unproven = accepts_loss, allows_unproven
        self.buffer = DecodeBuffer(buffer_bytes)
        self.suspension = SuspensionDetector(clock, lambda seconds: None)
        self._lister = lister
        self.retention = (
            None if lister is None else RetentionCheck(lister.oldest_retained_ms, lister.oldest_record, order_of, clock)
        )
        self._listed: dict[str, dict[str, Shard]] = {}
        self._committed: tuple[float, Sequence[tuple[str, ShardState]]] | None = None
        self._documents: dict[str, tuple[float, Mapping[str, ShardDocument]]] = {}
        self._has_late_beginning = False

    async def catch_up(self, stream: str) -> None:
        """List the stream if that was not done yet."""
        if self._lister is not None and stream not in self._listed:
            self.on_listed(stream, await self._lister.list_shards(stream))

    def on_listed(self, stream: str, listed: Sequence[Shard]) -> None:
        """Note a complete listing of the live stream."""
        self._listed[stream] = {shard.shard_id: shard for shard in listed if not shard.is_unlisted}

    def is_live(self, shard: Shard) -> bool:
        """Return whether the live stream lists the shard."""
        return self.live is not None and shard.shard_id in self._listed.get(shard.stream, ())

    async def is_live_now(self, shard: Shard) -> bool:
        """Return whether the live stream lists the shard, which may be newer than the last listing. Then the stream is listed again."""
        if self.live is not None and self._lister is not None and not self.is_live(shard):
            self.on_listed(shard.stream, await self._lister.list_shards(shard.stream))
        return self.is_live(shard)

    async def document(self, shard: Shard) -> ShardDocument | None:
        """Return the document of a shard as it is now, or None if it has none."""
        return await self.catalogue.document(shard)

    async def documents(self, stream: str) -> Mapping[str, ShardDocument]:
        """Return the documents of the stream's shards, by shard id.

        Raises: ConfigurationError if files have none, unless that is wanted.
        """
        return await self._load(stream, DOCUMENT_SECONDS)

    async def shards(self, stream: str) -> dict[str, Shard]:
        """Return every shard that is archived or listed, by id. A shard that only the archive has is closed and unlisted."""
        documents, listed = await self._load(stream, DOCUMENT_SECONDS), self._listed.get(stream, {})
        archived = {name: _shard(document) for name, document in documents.items()}
        # A listing may have forgotten the parents of a shard.
        known = {
            name: each if each.parents or name not in archived else replace(each, parents=archived[name].parents)
            for name, each in listed.items()
        }
        return {**archived, **known}

    async def shards_with(self, stream: str, needed: Iterable[str]) -> dict[str, Shard]:
        """Return the shards as `shards` does. If one of the `needed` ids is missing, read and list the archive again first."""
        found = await self.shards(stream)
        if all(name in found for name in needed):
            return found
        self._documents.pop(stream, None)
        if self._lister is not None:
            self.on_listed(stream, await self._lister.list_shards(stream))
        return await self.shards(stream)

    async def parents_open_ms(self, shard: Shard) -> int | None:
        """Return the latest time at which an archived parent of a shard was open (epoch ms), or None if not known."""
        documents = await self._load(shard.stream, DOCUMENT_SECONDS)
        return latest(*(documents[parent].open_ms for parent in shard.parents if parent in documents))

    async def tip_ms(self, shard: Shard, place: Place | None, *, again: bool) -> int | None:
        """Return until when the job that writes the archive saw no record behind a place (epoch ms).

        It tells nothing about another place than its position. What was stored earlier is still true of the same place.
        """
        at = self.clock.monotonic()
        if again or self._committed is None or at - self._committed[0] >= DOCUMENT_SECONDS:
            self._committed = at, await self.catalogue.committed()
        states = [state for key, state in self._committed[1] if key == shard.key and state.position is not None]
        return latest(
            *(each.tip_ms for each in states if each.position and place_of(each.position, self.order_of) == place)
        )

    async def oldest_record(self, shard: Shard) -> OldestRecord | None:
        """Return the oldest record that the stream still has of a shard."""
        return None if self._lister is None else await self._lister.oldest_record(shard)

    def is_first_late_beginning(self) -> bool:
        """Note that a shard has no older files. Return whether it is the first such shard of the job."""
        is_first, self._has_late_beginning = not self._has_late_beginning, True
        return is_first

    async def close(self) -> None:
        """Close the catalogue."""
        await self.catalogue.close()

    async def _load(self, stream: str, seconds: float) -> Mapping[str, ShardDocument]:
        known = self._documents.get(stream)
        now = self.clock.monotonic()
        if known is None or now - known[0] >= seconds:
            names = await self.catalogue.shard_ids(stream)
            documents = await self.catalogue.documents(stream)
            if unknown := sorted(names - documents.keys()):
                self._check_unproven(stream, unknown[0])
                documents = {**{name: ShardDocument(stream, name) for name in unknown}, **documents}
            known = self._documents[stream] = now, documents
        return known[1]

    def _check_unproven(self, stream: str, shard_id: str) -> None:
        if not self.allows_unproven:
            reason = (
                f"the files of {stream}/{shard_id} in {self.catalogue.place} were written without {ARCHIVE.key}, so nothing says which "
                "shards come after it, and records between its files may be missing"
            )
            raise ConfigurationError(ARCHIVE_UNPROVEN.key, "false", "true to read them nevertheless", reason=reason)


def _shard(document: ShardDocument) -> Shard:
    entries: dict[str, Any] = msgspec.to_builtins(document)
    return replace(shard_from_json(entries), closed=True, is_unlisted=True)
