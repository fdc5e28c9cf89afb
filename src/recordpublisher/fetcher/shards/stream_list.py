"""StreamList holds the streams that a job reads now. The list may be read again while the job runs (S10)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import overload

Look = Callable[[], Awaitable[Iterable[str]]]
"""Returns the names of the streams that should be read from now on. It keeps the last good list itself, and raises nothing."""


class StreamList(Sequence[str]):
    """Owns the names of the streams that are read now. Without `look` they stay the same."""

    def __init__(self, names: Iterable[str], look: Look | None = None, interval_seconds: float = 60.0) -> None:
        self._names = tuple(names)
        self._look = look
        self._interval = interval_seconds

    @property
    def is_fixed(self) -> bool:
        """Whether the streams stay the same."""
        return self._look is None

    async def run(self, on_look: Callable[[], Awaitable[None]]) -> None:
        """Read the list again and again. `on_look` is called each time, so that failed steps are tried again."""
        while self._look is not None:
            await asyncio.sleep(self._interval)
            self._names = tuple(await self._look())
            await on_look()

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, stream: object) -> bool:
        return stream in self._names

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...

    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._names[index]
