"""A sink that passes each batch to a function of the user, and a sink that keeps all records in memory."""

from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.base import Checks
from recordpublisher.publishers.errors import ConfigurationError, SinkError
from recordpublisher.publishers.properties.config_fields import import_check, imported_function
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import CALLBACK
from recordpublisher.publishers.records import Record, RecordBatch
from recordpublisher.publishers.safe_text import repr_of
from recordpublisher.publishers.user_code import UserFunction

_VALID = "module:function, of a function that takes a RecordBatch"


class CallbackSink(Sink):
    """Calls a function with each batch. A plain function runs in a thread, where it may block.

    A batch is finished when the function returns; an exception ends the job. Calls never overlap.

    - `function`: the function; None to import the function that `flink.sink.callback.function` names.

    Raises: ConfigurationError if there is no function, if its import fails, or if it is a generator.
    """

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        *,
        function: Callable[[RecordBatch], Awaitable[None] | None] | None = None,
    ) -> None:
        if callable(properties):
            raise ConfigurationError(
                "properties", repr_of(properties, 200), "CallbackSink(function=...) for a function"
            )
        self._function = function or imported_function(Properties(properties), CALLBACK, _VALID)
        # In a thread of its own, because `asyncio.run` would wait at its end for a thread of the event loop, even if the function hangs.
        threads = ThreadPoolExecutor(1, "recordpublisher-callback")
        self._call = UserFunction("function", self._function, _VALID, threads, arguments=1)

    def checks(self) -> Checks:
        """Return a check that says which function was imported. The check does not call the function."""
        return {"function": import_check(self._function)}

    async def write(self, batch: RecordBatch) -> None:
        """Call the function with the batch, and wait until it returns."""
        await self._call(batch)


# --- the memory sink, for tests, notebooks and small reads ---------------------------------------------------------------------


class MemorySink(Sink):
    """Keeps every batch and every watermark in memory, in order.

    A write that would exceed `limit` (records) raises SinkError, and none of its records is kept.
    """

    def __init__(self, properties: Mapping[str, object] | None = None, *, limit: int | None = None) -> None:
        self._limit = limit
        self._count = 0
        self._records: list[Record] = []
        self._expanded = 0
        self.batches: list[RecordBatch] = []
        self.watermarks: list[int] = []

    @property
    def records(self) -> list[Record]:
        """Every record written, in order. Records are made from the batches at this access, so a write has no cost per record."""
        for batch in self.batches[self._expanded :]:
            self._records.extend(batch)
        self._expanded = len(self.batches)
        return self._records

    async def write(self, batch: RecordBatch) -> None:
        """Keep the batch. Raises: SinkError if the limit would be exceeded."""
        if self._limit is not None and self._count + len(batch) > self._limit:
            raise SinkError(
                f"the memory sink holds {self._count} records, and this batch would exceed its limit of {self._limit}"
            )
        self._count += len(batch)
        self.batches.append(batch)

    async def watermark(self, watermark: int) -> None:
        """Keep the watermark."""
        self.watermarks.append(watermark)
