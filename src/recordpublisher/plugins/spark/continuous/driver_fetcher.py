"""DriverFetcher: the fetcher of a query in mode CONTINUOUS, in the process that plans it."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Protocol

from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError

from ..options import SparkOptions
from ..outages import Outage, OutageWatch, is_outage
from ..python_worker import WorkerLoop
from .back_pressure import BackPressure
from .wal_fetcher import WalFetcher

STEADY_SECONDS = 60.0
"""A fetcher that has run for so long has met no outage, or its outage is over: its retries end earlier by default."""


class BackgroundFetcher(Protocol):
    """What the query calls of its fetcher."""

    def start(self, stop_at_tip: bool) -> None:
        """Begin to read; does nothing when it has begun."""

    def has_ended(self) -> bool:
        """Whether it has read to the tips of all shards. Raises: the error that ended it."""

    @property
    def outage(self) -> Outage | None:
        """What keeps it from reading."""

    @property
    def figures(self) -> dict[str, object]:
        """Its part of the query's progress; empty before it has begun."""


class DriverFetcher:
    """Owns the fetcher, on the event loop of the driver's Python process. It ends with the process; its state is in the log.

    A fetcher that ends because a service is away is started again, as a job's supervisor would, for at most `maxOutage`.
    """

    def __init__(
        self, options: SparkOptions, store: WriteOnceStore, pressure: BackPressure, loop: WorkerLoop, clock: Clock
    ) -> None:
        self._options = options
        self._store = store
        self._pressure = pressure
        self._loop = loop
        self._clock = clock
        self._watch = OutageWatch(options.max_outage_ms, clock)
        self._work: Future[int] | None = None
        self._fetcher: WalFetcher | None = None

    @property
    def outage(self) -> Outage | None:
        """The outage that ended the last start, until the next one has run for a minute."""
        return self._watch.longest

    @property
    def figures(self) -> dict[str, object]:
        """Between two starts those of the last one: its shards fall behind."""
        return {} if self._fetcher is None else self._loop.run(_figures_of(self._fetcher))

    def start(self, stop_at_tip: bool) -> None:
        """Begin to read on the loop."""
        if self._work is None:
            self._work = self._loop.start(self._fetch(stop_at_tip))

    def has_ended(self) -> bool:
        """Raises: RecordPublisherError; FencedError when another start of the query has taken over."""
        if self._work is None or not self._work.done():
            return False
        self._work.result()
        return True

    async def _fetch(self, stop_at_tip: bool) -> int:
        while True:
            steady = asyncio.get_running_loop().call_later(STEADY_SECONDS, self._watch.on_success)
            try:
                fetcher = await WalFetcher.take_over(self._options, self._store, self._pressure, self._clock)
                self._fetcher = fetcher
                return await fetcher.run(stop_at_tip)
            except RecordPublisherError as error:
                if not is_outage(error):
                    raise
                pause = self._watch.on_failure(error)
            finally:
                steady.cancel()
            await asyncio.sleep(pause)


async def _figures_of(fetcher: WalFetcher) -> dict[str, object]:
    return fetcher.figures()
