"""Calls the methods of a `CommittingSink`: errors name the method, calls that hang are logged, and results of a wrong type are refused."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, TypeVar

from recordpublisher.publishers.errors import PluginError
from recordpublisher.publishers.safe_text import repr_of
from recordpublisher.publishers.user_code import PluginCall

from ..conditional_store import ConditionalStore
from ..sink import CommitNumber, CommittingSink, Leftover, Staged

T = TypeVar("T")


class CommittingCalls:
    """Calls the methods that `CommittingSink` adds to `Sink`. They have the same names here, and `CommittingSink` describes them.

    Each result is checked, so that the job ends before it stores positions of rows that the sink may have lost.

    Each method raises the errors of the sink's method, with a note that names it. It raises PluginError if the sink's method returns a
    wrong type, has not awaited a call, or raises an exception that would end the task without a message.
    """

    def __init__(self, sink: CommittingSink) -> None:
        self.sink = sink

    @property
    def can_take_back(self) -> bool:
        """Whether a commit that cannot be published can be undone."""
        return self.sink.can_take_back

    def target(self) -> str:
        """Return the name of the destination."""
        with PluginCall(self.sink, "target", note=self._note("target"), is_watched=False):
            found = self.sink.target()
        self._check("target", found, isinstance(found, str), "a str")
        return found

    async def begin(self, life: str) -> None:
        """Begin the run `life` of a worker process: drop the rows that the sink has not committed."""
        await self._call_for_nothing("begin", life)

    async def stage(self, number: CommitNumber) -> Staged | None:
        """Make the rows written since the last call durable. Return None if there are no rows."""
        found: Staged | None = await self._call("stage", number)
        is_right = found is None or isinstance(found, Staged)
        self._check("stage", found, is_right, "a Staged, or None if there are no rows")
        if found is None:
            return None
        name = self._name("stage")
        if found.number != number:
            raise PluginError(
                f"{name} returned a Staged with the number {repr_of(found.number)}: return the number that it was called with"
            )
        if not isinstance(found.content, Mapping):
            raise PluginError(
                f"{name} returned a Staged with the content {repr_of(found.content)}: the content must be a dict that JSON can hold"
            )
        if wrong := _not_json(found.content):
            raise PluginError(f"{name} returned a Staged with content that JSON cannot hold unchanged: {wrong}")
        return found

    async def commit(
        self, store: ConditionalStore, name: str, value: bytes, expected: str | None, staged: Sequence[Staged]
    ) -> str:
        """Write `value` under `name`, which commits the items in `staged`. Return the new version."""
        found: str = await self._call("commit", store, name, value, expected, staged)
        wanted = "the new version of the value that it has written, as a str, as `write_value` does"
        self._check("commit", found, isinstance(found, str), wanted)
        return found

    async def publish(self, staged: Sequence[Staged]) -> None:
        """Make staged items visible."""
        await self._call_for_nothing("publish", staged)

    async def unpublished(self, staged: Sequence[Staged]) -> Sequence[Staged]:
        """Return the staged items whose rows are certainly not visible."""
        return await self._call_for_items("unpublished", Staged, staged)

    async def take_back(self, staged: Sequence[Staged]) -> Sequence[Staged]:
        """Undo the commits of items that are not published. Return these items."""
        return await self._call_for_items("take_back", Staged, staged)

    async def writers(self) -> Sequence[str]:
        """Return the names of the writers that have rows in the destination."""
        return await self._call_for_items("writers", str)

    async def discard(self, has_ended: Callable[[str], bool], kept: Sequence[Staged]) -> None:
        """Delete the staged items of each run of a worker process that `has_ended`, except the items in `kept`."""
        await self._call_for_nothing("discard", has_ended, kept)

    async def forget_ended_lives(self, is_forgotten: Callable[[str], bool]) -> bool:
        """Delete what the destination keeps of each run of a worker process that `is_forgotten`. Return whether nothing is left."""
        found: bool = await self._call("forget_ended_lives", is_forgotten)
        self._check("forget_ended_lives", found, isinstance(found, bool), "True or False")
        return found

    async def leftovers(self, kept: Sequence[Staged]) -> Sequence[Leftover]:
        """Return the files and objects that any worker has staged, except those of the items in `kept`."""
        return await self._call_for_items("leftovers", Leftover, kept)

    async def remove(self, leftovers: Sequence[Leftover]) -> None:
        """Delete `leftovers`: files and objects that were staged and never committed."""
        await self._call_for_nothing("remove", leftovers)

    async def end_life(self, life: str) -> None:
        """Release the locks that the run `life` of a worker process holds."""
        await self._call_for_nothing("end_life", life)

    async def _call(self, method: str, *given: Any) -> Any:
        with PluginCall(self.sink, method, note=self._note(method)):
            return await getattr(self.sink, method)(*given)

    async def _call_for_nothing(self, method: str, *given: Any) -> None:
        found = await self._call(method, *given)
        if isinstance(found, types.CoroutineType):
            self._check(method, found, False, "None")

    async def _call_for_items(self, method: str, kind: type[T], *given: Any) -> Sequence[T]:
        found: Sequence[T] = await self._call(method, *given)
        is_list = isinstance(found, Sequence) and not isinstance(found, (str, bytes))
        is_right = is_list and all(isinstance(each, kind) for each in found)
        self._check(method, found, is_right, f"a list of {kind.__name__}, and [] for none")
        return found

    def _check(self, method: str, found: Any, is_right: bool, wanted: str) -> None:
        if is_right:
            return
        if isinstance(found, types.CoroutineType):
            found.close()  # Closed, because Python would also warn of a coroutine that never ran.
            name = found.cr_code.co_qualname
            raise PluginError(
                f"{self._name(method)} has not awaited a call, so its work was not done: it returned the coroutine of "
                f"`{name}`; write `await`"
            )
        raise PluginError(f"{self._name(method)} returned {repr_of(found)}: return {wanted}")

    def _name(self, method: str) -> str:
        return f"`{type(self.sink).__name__}.{method}`"

    def _note(self, method: str) -> str:
        return f"the sink {type(self.sink).__name__} failed in `{method}`"


def _not_json(value: Any, place: str = "content") -> str:
    """Describe the first part of a value that JSON would change or refuse. Return an empty text if there is no such part.

    `place`: the words for the value in the description.
    """
    if isinstance(value, Mapping):
        for key, each in value.items():
            if not isinstance(key, str):
                return f"the key {repr_of(key)} in {place} is not a str"
            if wrong := _not_json(each, f"{place}[{key!r}]"):
                return wrong
        return ""
    if isinstance(value, (list, tuple)):
        return next(filter(None, (_not_json(each, f"{place}[{index}]") for index, each in enumerate(value))), "")
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and isfinite(value)):
        return ""
    return f"{place} is {repr_of(value)}"
