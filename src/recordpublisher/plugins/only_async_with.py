"""Refuses `with` where `async with` is needed, and says what to write: Python's own message does not."""

from __future__ import annotations

from typing import ClassVar, NoReturn


class OnlyAsyncWith:
    """Makes a plain `with` of the class an error that says `async with`."""

    _called: ClassVar[str] = ""
    """What the program calls to make the object, if that is not the class."""

    def __enter__(self) -> NoReturn:
        """Refuse the statement. Raises: TypeError that says what to write."""
        # Python looks up this method of the class, and reports only "context manager protocol" if it is missing.
        raise TypeError(
            f"{self._called or type(self).__name__} needs 'async with', in a coroutine{self._instead_of_with()}"
        )

    def __exit__(self, *_: object) -> None:
        """Never called, but Python looks it up before it calls `__enter__`."""

    def _instead_of_with(self) -> str:
        """Return what a program without asyncio can use, as the end of a sentence."""
        return ""
