"""Deregisters the fan-out consumers of a query that has ended and is not expected to start again."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError

from ..service.efo_consumers import consumer_properties, deregister_consumers

LOG = logging.getLogger("recordpublisher.spark")


class ConsumerDeregistration(StreamingQueryListener):  # type: ignore[misc] # pyspark is not typed here
    """Deregisters the fan-out consumers of a query when it ends without an error: by `stop()`, or as AvailableNow.

    Use: `spark.streams.addListener(rp.spark.ConsumerDeregistration("flights", properties, query="flights-to-parquet"))`.

    After an error the query is expected to start again, so its consumers stay. A query that starts again after they were deregistered
    registers them again, which takes some seconds. An error of the calls is logged: the query has ended, and
    `rp.spark.deregister_consumers` can be called later.

    - `properties`: name the consumer (`flink.stream.efo.consumername`). The query's options may be used.
    - `query`: the query's name (`queryName`), because a Spark application may run several.
    - `deregister`: only used by tests.

    Raises: ConfigurationError if the consumer's or the query's name is missing.
    """

    def __init__(
        self,
        streams: str | Sequence[str],
        properties: Mapping[str, object],
        query: str,
        deregister: Callable[[str | Sequence[str], Mapping[str, object]], None] = deregister_consumers,
    ) -> None:
        self._properties = consumer_properties(properties)
        if not query:
            raise ConfigurationError("query", query, "the name that queryName(...) gave the query")
        self._streams = streams
        self._query = query
        self._deregister = deregister
        self._runs: set[str] = set()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Remember the run of the query, because the event of its end has no name."""
        if event.name == self._query:
            self._runs.add(str(event.runId))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Deregister the consumers, unless the query failed or another run of it is in progress."""
        run = str(event.runId)
        if run not in self._runs:
            return
        self._runs.discard(run)
        if event.exception is not None:
            LOG.info("query %s failed: its consumers stay registered for its next start", self._query)
            return
        if self._runs:
            return
        try:
            self._deregister(self._streams, self._properties)
        except RecordPublisherError as error:
            LOG.warning("the consumers of query %s stay registered, and AWS charges for them: %s", self._query, error)
