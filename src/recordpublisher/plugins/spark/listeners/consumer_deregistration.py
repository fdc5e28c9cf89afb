"""ConsumerDeregistration: deregisters the fan-out consumers of a query that ended for good."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError

from ..service.efo_consumers import consumer_properties, deregister_consumers

LOG = logging.getLogger("recordpublisher.spark")


class ConsumerDeregistration(StreamingQueryListener):  # type: ignore[misc] # pyspark is not typed here
    """`spark.streams.addListener(rp.spark.ConsumerDeregistration("flights", properties, query="flights-to-parquet"))`.

    A query ends for good when it ends without an error: by `stop()`, or as AvailableNow. After an error it is expected to start again,
    and its consumers stay. A query that starts again after all registers them anew, which takes some seconds. The consumer is that of
    `flink.stream.efo.consumername` in the properties, for which the query's options do; `query` is the query's name (`queryName`), since
    a Spark may run several.

    An error of the calls is a log line: the query has ended, and `rp.spark.deregister_consumers` can be called later.
    """

    def __init__(
        self,
        streams: str | Sequence[str],
        properties: Mapping[str, object],
        query: str,
        deregister: Callable[[str | Sequence[str], Mapping[str, object]], None] = deregister_consumers,
    ) -> None:
        """Raises: ConfigurationError without a consumer's name or the query's. `deregister` is for tests."""
        self._properties = consumer_properties(properties)
        if not query:
            raise ConfigurationError("query", query, "the name that queryName(...) gave the query")
        self._streams = streams
        self._query = query
        self._deregister = deregister
        self._runs: set[str] = set()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Remember the runs of the query: the event of their end has no name."""
        if event.name == self._query:
            self._runs.add(str(event.runId))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Does nothing."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Does nothing."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Deregister, unless the query failed or another run of it goes on."""
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
