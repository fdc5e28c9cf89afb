"""A sink that passes each batch to a function of the user."""

from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.base import Checks
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.function_property import import_check, imported_function
from recordpublisher.publishers.properties.groups.sinks import CALLBACK
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.user_code import UserFunction

_VALID = "module:function, of a function that takes a RecordBatch"


class CallbackSink(Sink):
    """Calls a function with each batch. A plain function runs in a thread, where it may block.

    A batch is finished when the function returns; an exception ends the job. Calls never overlap.

    - `function`: the function. Without it the property `flink.sink.callback.function` names it.

    Raises: ConfigurationError if neither is set, if the import fails, or if the function is a generator.
    """

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        *,
        function: Callable[[RecordBatch], Awaitable[None] | None] | None = None,
    ) -> None:
        if callable(properties):
            raise ConfigurationError("properties", f"{properties!r:.200}", "CallbackSink(function=...) for a function")
        self._function = function or imported_function(Properties(properties), CALLBACK, _VALID)
        # A pool of its own, because `asyncio.run` waits for the event loop's threads, even if the function never returns.
        threads = ThreadPoolExecutor(1, "recordpublisher-callback")
        self._call = UserFunction("function", self._function, _VALID, threads, arguments=1)

    def checks(self) -> Checks:
        """Return a check that says which function was imported. The check does not call it."""
        return {"function": import_check(self._function)}

    async def write(self, batch: RecordBatch) -> None:
        """Call the function with the batch, and wait until it returns."""
        await self._call(batch)
