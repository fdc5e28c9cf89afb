"""CallbackSink: passes each batch to a function of the user."""

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
    """Calls a function with each batch; a plain function in a thread, where it may block.

    A batch is done when the function returns; an exception ends the job. Calls never overlap.
    """

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        *,
        function: Callable[[RecordBatch], Awaitable[None] | None] | None = None,
    ) -> None:
        """`function`, or the property with its name. Raises: ConfigurationError when neither is set or the import fails,
        and for a generator."""
        if callable(properties):
            raise ConfigurationError("properties", f"{properties!r:.200}", "CallbackSink(function=...) for a function")
        self._function = function or imported_function(Properties(properties), CALLBACK, _VALID)
        # of its own: `asyncio.run` waits for the event loop's threads, also for a function that never returns
        threads = ThreadPoolExecutor(1, "recordpublisher-callback")
        self._call = UserFunction("function", self._function, _VALID, threads, arguments=1)

    def checks(self) -> Checks:
        """The function was imported."""
        return {"function": import_check(self._function)}

    async def write(self, batch: RecordBatch) -> None:
        """Call the function and wait until it is done."""
        await self._call(batch)
