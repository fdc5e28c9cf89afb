"""S3StateStore: checkpoints as objects that are replaced only by who wrote them last (S6)."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

from recordpublisher.fetcher.checkpoints.store import StateStore
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.errors import FencedError, StateError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import STATE_URI

from ..aws_client import RefusedError
from .bucket import Bucket

_TRIES = 10


class S3StateStore(StateStore):
    """One object for each subtask, `<prefix>/subtask-0.json`: its generation and its snapshot together.

    Every write is conditional (`If-Match`, `If-None-Match`): a start changes the object's ETag, so that no earlier start can replace it
    any more. The bucket's credentials need GetObject, PutObject and ListBucket.
    """

    def __init__(self, properties: Properties) -> None:
        """Raises: ConfigurationError when `flink.state.uri` is not s3://bucket/prefix."""
        self._bucket = Bucket(properties.value(STATE_URI) or "", STATE_URI.key, properties)
        self._etags: dict[int, str] = {}

    async def load(self) -> list[State]:
        """Every subtask's snapshot. Raises: StateError naming the object that cannot be read."""
        entries = [await self._entry(name) async for name in self._bucket.names("subtask-")]
        return [entry["snapshot"] for entry, _ in entries if entry["snapshot"] is not None]

    async def open_generation(self, subtask: int) -> int:
        """The next number; later stores of this subtask's earlier starts raise FencedError."""
        for attempt in range(_TRIES):
            others = [await self._entry(name) async for name in self._bucket.names("subtask-")]
            generation = max((entry["generation"] for entry, _ in others), default=0) + 1
            entry, etag = await self._entry(_name(subtask))
            try:
                await self._put(subtask, {**entry, "generation": generation}, etag)
            except RefusedError:
                await asyncio.sleep(random.random() * 0.1 * 2**attempt)  # noqa: S311 - jitter
            else:
                return generation
        raise StateError(f"{self._place(subtask)} is opened by others again and again")

    async def store(self, subtask: int, generation: int, state: State) -> None:
        """Replace the subtask's snapshot. Raises: FencedError when a later start of the subtask owns it."""
        content = {"generation": generation, "snapshot": dict(state)}
        for _ in range(_TRIES):
            try:
                await self._put(subtask, content, self._etags.get(subtask, ""))
            except RefusedError:
                if await self._is_stored(subtask, content):
                    return
            else:
                return
        raise StateError(f"{self._place(subtask)} changes under our hands")

    async def close(self) -> None:
        """Close the client."""
        await self._bucket.service.close()

    async def _is_stored(self, subtask: int, content: dict[str, Any]) -> bool:
        """After a refusal: did our own write come through without its answer? Raises: FencedError when another start owns the object."""
        entry, etag = await self._entry(_name(subtask))
        if entry["generation"] != content["generation"]:
            raise FencedError(
                f"generation {entry['generation']} owns {self._place(subtask)}; generation {content['generation']} must stop"
            )
        self._etags[subtask] = etag
        return bool(entry == content)

    async def _put(self, subtask: int, content: dict[str, Any], expected: str) -> None:
        self._etags[subtask] = await self._bucket.put(_name(subtask), json.dumps(content).encode(), expected)

    async def _entry(self, name: str) -> tuple[dict[str, Any], str]:
        content, etag = await self._bucket.find(name)
        if content is None:
            return {"generation": 0, "snapshot": None}, etag
        try:
            entry = json.loads(content)
            return {"generation": int(entry["generation"]), "snapshot": entry["snapshot"]}, etag
        except (ValueError, KeyError, TypeError) as error:
            raise StateError(
                f"the stored state {self._bucket.service.place}: {name} cannot be read: {error}"
            ) from error

    def _place(self, subtask: int) -> str:
        return f"{self._bucket.service.place}: {_name(subtask)}"


def _name(subtask: int) -> str:
    return f"subtask-{subtask}.json"
