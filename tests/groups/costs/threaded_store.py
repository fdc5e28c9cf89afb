"""A real store for processes on virtual time: each call runs in a thread, and takes no virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from recordpublisher.fetcher.conditional_store import ConditionalStore, VersionedValue

T = TypeVar("T")
CALL_SECONDS = 60


class ThreadedStore(ConditionalStore):
    """Passes each call to `store`, whose event loop runs in another thread, and blocks until it has answered."""

    def __init__(self, store: ConditionalStore, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self.place = store.place

    async def get(self, name: str) -> VersionedValue | None:
        return self._call(self._store.get(name))

    async def get_all(self, names: Iterable[str]) -> dict[str, VersionedValue]:
        return self._call(self._store.get_all(names))

    async def put_if_absent(self, name: str, value: bytes) -> str:
        return self._call(self._store.put_if_absent(name, value))

    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        return self._call(self._store.compare_and_set(name, value, expected))

    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        return self._call(self._store.list(prefix, consistent=consistent))

    async def list_versions(self, prefix: str) -> Mapping[str, str]:
        return self._call(self._store.list_versions(prefix))

    async def list_names(self, prefix: str, before: str | None = None) -> Sequence[str]:
        return self._call(self._store.list_names(prefix, before))

    async def delete(self, *names: str) -> None:
        self._call(self._store.delete(*names))

    async def close(self) -> None:
        self._call(self._store.close())

    def _call(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(CALL_SECONDS)


@contextmanager
def loop_in_thread() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs in a thread until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
