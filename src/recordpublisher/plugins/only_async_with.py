"""The base class of objects that need `async with`."""

from __future__ import annotations

from typing import ClassVar, NoReturn


class OnlyAsyncWith:
    """Base class of objects that need `async with`. A plain `with` raises an error that says what to write. Python's own error does not."""

    _called: ClassVar[str] = ""
    """Name of the function that makes the object; empty if a program calls the class itself."""

    def __enter__(self) -> NoReturn:
        """Refuse the `with` statement. Raises: TypeError, which says what to write instead."""
        # Python looks up this method of the class, and reports only "context manager protocol" if it is missing.
        raise TypeError(
            f"{self._called or type(self).__name__} needs 'async with', in a coroutine{self._instead_of_with()}"
        )

    def __exit__(self, *_: object) -> None:
        """Do nothing. Python never calls this method, but looks it up before it calls `__enter__`."""

    def _instead_of_with(self) -> str:
        """Return the end of the error message: what a program without asyncio can use. Empty by default."""
        return ""
