"""Makes a plain `with`, where `async with` is needed, an error that says what to write. Python's own message does not say it."""

from __future__ import annotations

from typing import ClassVar, NoReturn


class OnlyAsyncWith:
    """Base class of objects that need `async with`. A plain `with` raises an error that says so."""

    _called: ClassVar[str] = ""
    """Name of the function that a program calls to make the object, if it does not call the class."""

    def __enter__(self) -> NoReturn:
        """Refuse the `with` statement. Raises: TypeError, which says what to write instead."""
        # Python looks up this method of the class, and reports only "context manager protocol" if it is missing.
        raise TypeError(
            f"{self._called or type(self).__name__} needs 'async with', in a coroutine{self._instead_of_with()}"
        )

    def __exit__(self, *_: object) -> None:
        """Do nothing. Python never calls this method, but looks it up before it calls `__enter__`."""

    def _instead_of_with(self) -> str:
        """Return the end of the error's sentence, which says what a program without asyncio can use; empty by default."""
        return ""
