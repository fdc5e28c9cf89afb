"""The callback sink: batches go to a function of the user's."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Awaitable, Callable

from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import CALLBACK
from recordpublisher.publishers.records import RecordBatch

_VALID = "module:function, of a function that takes a RecordBatch"


class CallbackSink(Sink):
    """Calls a function with each batch. A plain function runs in a thread and may block; a coroutine function is awaited.

    When it returns, the batch counts as done; what it raises ends the job. Calls never overlap.
    """

    def __init__(
        self,
        properties: Properties | None = None,
        *,
        function: Callable[[RecordBatch], Awaitable[None] | None] | None = None,
    ) -> None:
        """`function`, or by property its name. Raises: ConfigurationError when there is none or it cannot be imported."""
        self._function = function or _imported((properties or Properties()).value(CALLBACK))

    async def write(self, batch: RecordBatch) -> None:
        """Call, and wait until it is done."""
        if inspect.iscoroutinefunction(self._function):
            await self._function(batch)
        else:
            await asyncio.to_thread(self._function, batch)


def _imported(path: str | None) -> Callable[[RecordBatch], Awaitable[None] | None]:
    module, _, name = (path or "").partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(CALLBACK.key, path, _VALID, reason=str(error)) from error
    if not callable(found):
        raise ConfigurationError(CALLBACK.key, path, _VALID)
    return found  # type: ignore[no-any-return]
