"""Listeners for Spark's queries. One shows their progress to Prometheus, the other deregisters a query's consumers at its end."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from recordpublisher.plugins.metrics.http_pages import HttpPages, Page
from recordpublisher.plugins.metrics.prometheus.exporter import CONTENT_TYPE, escaped_label, host_and_port, metric_lines
from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError
from recordpublisher.publishers.properties.job_properties import PROMETHEUS_ADDRESS

from .efo_consumers import consumer_properties, deregister_consumers
from .python_worker import worker_loop

LOG = logging.getLogger("recordpublisher.spark")
QueryFigures = Iterable[tuple[str, Sequence[Mapping[str, Any]]]]
"""Pairs of a query's name and a list with one dict of figures for each source of the query."""


class ProgressListener(StreamingQueryListener):  # type: ignore[misc] # pyspark is not typed here
    """Serves a `/metrics` page with the progress of each query that reads with this library.

    The page is served by the driver, or with Spark Connect by the client. Its figures are those under `latestOffset` in the query's
    progress. Use: `spark.streams.addListener(rp.spark.ProgressListener("127.0.0.1:9249"))`.

    The listener also logs the `warnings` of the progress, each text once in a run of a query. Spark itself writes them to the driver's
    stderr, which a notebook may not show.

    - `address`: host:port at which it listens. Port 0 selects a free port.

    Raises: ConfigurationError if the address cannot be used.
    """

    def __init__(self, address: str = "127.0.0.1:9249") -> None:
        self._runs: dict[str, tuple[str, list[dict[str, Any]]]] = {}
        self._logged: dict[str, set[str]] = {}
        self._pages = HttpPages({"/metrics": self._page})
        host, port = host_and_port(address)
        try:
            port = worker_loop().run(self._pages.listen(host.strip("[]"), port))
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            valid = "an address of this machine with a free port"
            raise ConfigurationError(PROMETHEUS_ADDRESS.key, address, valid, reason=reason) from error
        self.url = f"http://{host}:{port}/metrics"
        """URL of the metrics page."""

    def close(self) -> None:
        """Stop serving the metrics page."""
        worker_loop().run(self._pages.close())

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Do nothing, because there are no figures yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Keep the figures of the last batch."""
        self._keep(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Keep the newest figures while no batch runs. They are taken from the query, because the event has no figures."""
        query = None if self.spark is None else self.spark.streams.get(str(event.id))
        if query is not None and (progress := query.lastProgress) is not None:
            self._keep(progress)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Forget the figures and the warnings of a run that has ended."""
        self._runs.pop(str(event.runId), None)
        self._logged.pop(str(event.runId), None)

    def _keep(self, progress: Any) -> None:
        found = [figures for source in progress.sources if (figures := _figures_of(source.latestOffset)) is not None]
        if found:
            of_query = {"inputRowsPerSecond": progress.inputRowsPerSecond, "batchDurationMs": progress.batchDuration}
            name = progress.name or str(progress.id)
            self._runs[str(progress.runId)] = (name, [{**of_query, **figures} for figures in found])
            self._log_warnings(str(progress.runId), name, found)

    def _log_warnings(self, run: str, name: str, found: list[dict[str, Any]]) -> None:
        logged = self._logged.setdefault(run, set())
        for text in dict.fromkeys(text for figures in found for text in figures.get("warnings", ())):
            if text not in logged:
                logged.add(text)
                LOG.warning("query %s: %s", name, text)

    async def _page(self) -> Page:
        return Page(page_of_queries(list(self._runs.values())).encode(), content_type=CONTENT_TYPE)


def _figures_of(latest_offset: str | None) -> dict[str, Any] | None:
    """Return the figures in `latest_offset`, or None if another source made it. In Spark 4.0 and 4.1 they are a part of the offset."""
    try:
        reported = json.loads(latest_offset or "null")
    except ValueError:
        return None
    figures = reported.get("figures", reported) if isinstance(reported, dict) else None
    return figures if isinstance(figures, dict) and {"batch", "globalWatermark"} <= figures.keys() else None


class ConsumerDeregistration(StreamingQueryListener):  # type: ignore[misc] # pyspark is not typed here
    """Deregisters the fan-out consumers of a query when it ends without an error: by `stop()`, or as AvailableNow.

    Use: `spark.streams.addListener(rp.spark.ConsumerDeregistration("flights", properties, query="flights-to-parquet"))`.

    After an error the consumers stay, because the query is expected to start again. If a query starts again after its consumers were
    deregistered, it registers them again, which takes some seconds. If a consumer cannot be deregistered, the error is logged. Call
    `rp.spark.deregister_consumers` then.

    - `streams`: the streams that the query reads.
    - `properties`: properties that name the consumer (`flink.stream.efo.consumername`). The query's options may be used.
    - `query`: the query's name (`queryName`), because a Spark application may run several.
    - `deregister`: only used by tests.

    Raises: ConfigurationError if the consumer's name or the query's name is missing.
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
        """Remember the id of the query's run, because `onQueryTerminated` does not receive the query's name."""
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


@dataclass(frozen=True, slots=True)
class ProgressMetric:
    """A figure in a query's progress that is exported as a metric, divided by `divisor`."""

    figure: str
    name: str
    description: str
    divisor: int = 1
    kind: str = "gauge"


PROGRESS_METRICS = (
    ProgressMetric("batch", "batch", "number of the last planned batch"),
    ProgressMetric("shards", "shards", "shards of the query"),
    ProgressMetric("reading", "reading_shards", "shards that the batch reads"),
    ProgressMetric("idle", "idle_shards", "shards that the watermark does not wait for"),
    ProgressMetric("held", "held_shards", "shards that alignment holds"),
    ProgressMetric("atTip", "at_tip_shards", "shards whose last read reached the tip"),
    ProgressMetric("tasks", "tasks", "tasks of the batch"),
    ProgressMetric("records", "records_total", "records so far", kind="counter"),
    ProgressMetric("bytes", "bytes_total", "bytes so far, before de-aggregation", kind="counter"),
    ProgressMetric(
        "skippedRecords",
        "skipped_records_total",
        "records so far that could not be used and were left out",
        kind="counter",
    ),
    ProgressMetric("lastBatchRecords", "last_batch_records", "records of the last batch that ended"),
    ProgressMetric("lastBatchBytes", "last_batch_bytes", "bytes of the last batch that ended"),
    ProgressMetric("recordsPerSecond", "records_per_second", "records of that batch by the time since it was planned"),
    ProgressMetric("bytesPerSecond", "bytes_per_second", "bytes of that batch by the time since it was planned"),
    ProgressMetric(
        "millisBehindLatest", "behind_latest_seconds", "how far the shard that is furthest behind was", 1000
    ),
    ProgressMetric(
        "minMillisBehindLatest", "behind_latest_min_seconds", "how far the shard that is least behind was", 1000
    ),
    ProgressMetric(
        "avgMillisBehindLatest", "behind_latest_avg_seconds", "how far the shards were behind, average", 1000
    ),
    ProgressMetric("globalWatermark", "global_watermark_timestamp_seconds", "the global watermark", 1000),
    ProgressMetric(
        "timeToRetentionLossMs",
        "time_to_retention_loss_seconds",
        "until unread records of the worst shard may be past retention",
        1000,
    ),
    ProgressMetric("inputRowsPerSecond", "input_rows_per_second", "rows a second, as Spark counts"),
    ProgressMetric("batchDurationMs", "batch_duration_seconds", "how long the last batch took", 1000),
)
OUTAGE = "recordpublisher_spark_outage", "gauge", "1 while a service is unreachable"


def page_of_queries(queries: QueryFigures) -> str:
    """Return the metrics of all queries as a Prometheus page. A figure that a query does not have gets no line."""
    rows = [
        (f'query="{escaped_label(name)}",source="{number}"', figures)
        for name, sources in queries
        for number, figures in enumerate(sources)
    ]
    lines = metric_lines(*OUTAGE, [f"{{{labels}}} {int('outage' in figures)}" for labels, figures in rows])
    for metric in PROGRESS_METRICS:
        known = [
            f"{{{labels}}} {value if metric.divisor == 1 else value / metric.divisor!r}"
            for labels, figures in rows
            if isinstance(value := figures.get(metric.figure), int | float)
        ]
        if known:
            lines += metric_lines(f"recordpublisher_spark_{metric.name}", metric.kind, metric.description, known)
    return "".join(lines)
