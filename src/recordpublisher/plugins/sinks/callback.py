"""CallbackSink: passes each batch to a function of the user."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.checks import Checks
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import CALLBACK
from recordpublisher.publishers.records import RecordBatch

from ..host.function_property import import_check, imported_function

_VALID = "module:function, of a function that takes a RecordBatch"


class CallbackSink(Sink):
    """Calls a function with each batch. A plain function runs in a thread and may block; a coroutine function is awaited.

    A batch is done when the function returns; an exception ends the job. Calls never overlap.
    """

    def __init__(
        self,
        properties: Properties | None = None,
        *,
        function: Callable[[RecordBatch], Awaitable[None] | None] | None = None,
    ) -> None:
        """`function`, or the property with its name. Raises: ConfigurationError when neither is set or the import fails."""
        self._function = function or imported_function(properties or Properties(), CALLBACK, _VALID)

    def checks(self) -> Checks:
        """The function was imported."""
        return {"function": import_check(self._function)}

    async def write(self, batch: RecordBatch) -> None:
        """Call the function and wait until it returns."""
        if inspect.iscoroutinefunction(self._function):
            await self._function(batch)
        else:
            await asyncio.to_thread(self._function, batch)
