"""Serves the pages /metrics, /healthz and /readyz, and makes the text of /metrics for other servers (`rp.metrics_text`)."""

import errno
import logging
import os
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any

from recordpublisher.fetcher.metric_types import MetricType
from recordpublisher.fetcher.monitoring.metrics_exporter import (
    MetricsExporter,
    MetricsSource,
    WorkerHealth,
    WorkerMetrics,
)
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.histogram import HistogramValue
from recordpublisher.publishers.properties.job_properties import PROMETHEUS_ADDRESS
from recordpublisher.publishers.properties.properties import Properties

from ..export import (
    ExportedMetric,
    FetchersOfProcess,
    MeasuredFetcher,
    MeasuredProducer,
    MetricOrigin,
    as_measured_fetchers,
    exported_tables,
)
from ..http_pages import LOCAL_NAMES, HttpPages, Page

log = logging.getLogger("recordpublisher.metrics")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_VALID = (
    "host:port or host:first-last, for example 127.0.0.1:9249 or [::1]:9249, or 0.0.0.0:9249-9268 for other machines"
)
Row = tuple[str, dict[str, Any]]
"""The labels of a worker or shard, and its values."""
_UP = "recordpublisher_worker_up", "gauge", "1 while the event loop of the worker responds"
_READY = "recordpublisher_worker_ready", "gauge", "1 while the worker reads and its checkpoints are stored"
_PRODUCER_READY = "recordpublisher_producer_ready", "gauge", "1 unless the producer cannot put records"


class PrometheusExporter(MetricsExporter):
    """Serves the pages of one machine at `flink.metrics.prometheus.address`. Owns the server.

    Raises: ConfigurationError if the address is invalid.
    """

    def __init__(self, properties: Properties) -> None:
        self._address = properties.value(PROMETHEUS_ADDRESS)
        self._host, self._ports = _host_and_ports(self._address)
        self._port = self._ports.start
        pages = {"/metrics": self._metrics, "/healthz": self._alive, "/readyz": self._ready}
        self._pages = HttpPages(pages, is_local=self._host in LOCAL_NAMES)

    @property
    def url(self) -> str:
        """URL of the pages, once the exporter is open."""
        return f"http://{self._host}:{self._port}"

    async def open(self, source: MetricsSource) -> None:
        """Listen. Raises: ConfigurationError if the address cannot be used."""
        self._source = source
        try:
            self._port = await self._listen()
        except (OSError, ValueError) as error:
            # A ValueError means that a part of the host name is too long, or has a null character.
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            valid = "an address of this machine with a free port, or for several processes a range of ports, host:first-last"
            # The port may be free soon, for example when the last process of this job has ended.
            may_pass = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            raise ConfigurationError(
                PROMETHEUS_ADDRESS.key, self._address, valid, reason=reason, may_pass=may_pass
            ) from error
        log.info("metrics are at %s/metrics, health at /healthz and /readyz", self.url)

    async def _listen(self) -> int:
        """Listen at the first free port of the range, and return the port.

        Raises: OSError or ValueError if the address cannot be used.
        """
        for port in self._ports:
            try:
                found = await self._pages.listen(self._host.strip("[]"), port)
            except OSError as error:
                # If the port is not in use by another process, the next port would fail as well.
                if error.errno != errno.EADDRINUSE or port == self._ports[-1]:
                    raise
            else:
                if found != self._port and port:
                    message = "another process uses port %d, so metrics and health are at port %d, the next free one"
                    log.info(message, self._port, found)
                return found
        raise AssertionError("the loop tries at least one port")

    async def close(self) -> None:
        """Stop listening and close every connection."""
        await self._pages.close()

    async def _metrics(self) -> Page:
        page = metrics_page(await self._source.metrics(), await self._source.health())
        return Page(page.encode(), content_type=CONTENT_TYPE)

    async def _alive(self) -> Page:
        return _health_page([_silence(each) for each in await self._source.health() if not each.responds])

    async def _ready(self) -> Page:
        health = await self._source.health()
        reasons = [f"{each.name}: {reason}" for each in health for reason in each.not_ready]
        page = _health_page([_silence(each) for each in health if not each.responds] + reasons)
        # A job that is not ready has no meaningful lag, so its page has no line about it.
        return page if page.status == 503 else Page(page.body + await self._behind())

    async def _behind(self) -> bytes:
        """Return a line with the lag of the job for /readyz, or nothing if no lag is known. A job that is ready may be far behind."""
        lags = [shard["lagMs"] for each in await self._source.metrics() for shard in each.shards.values()]
        known = [lag for lag in lags if lag is not None]
        return b"%.1f s behind\n" % (max(known) / 1000) if known else b""


def _silence(health: WorkerHealth) -> str:
    return f"{health.name}: its event loop does not respond"


def _health_page(reasons: list[str]) -> Page:
    return Page("\n".join([*(reasons or ["ok"]), ""]).encode(), status=503 if reasons else 200)


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an address. Raises: ConfigurationError if it is not host:port."""
    host, ports = _host_and_ports(address)
    if len(ports) > 1:
        raise ConfigurationError(PROMETHEUS_ADDRESS.key, address, "host:port")
    return host, ports.start


def _host_and_ports(address: str) -> tuple[str, range]:
    """Return the host of an address, and its ports. Raises: ConfigurationError if it is not host:port or host:first-last."""
    host, _, ports = address.rpartition(":")
    first, dash, last = ports.partition("-")
    # Without brackets, ::1 would not count as a name of this machine.
    has_brackets = host.startswith("[") and host.endswith("]")
    is_number = first.isdecimal() and (last.isdecimal() or not dash)
    found = range(int(first), int(last if dash else first) + 1) if is_number else range(0)
    if not host or (":" in host and not has_brackets) or not found or found[-1] >= 65_536 or (dash and not found.start):
        raise ConfigurationError(PROMETHEUS_ADDRESS.key, address, _VALID)
    return host, found


def metrics_text(*sources: MeasuredFetcher | MeasuredProducer) -> str:
    """Return the metrics in the text format of Prometheus, for a page `/metrics` that the application serves itself.

    - `sources`: fetchers, producers, and Kinesis sinks that are not the sink of a job. Call this in the event loop of the fetchers.

    The label `producer` of a producer or sink is its stream. For the second one of the stream `orders` it is `orders-2`.

    Raises: TypeError if a source has no metrics.
    """
    here = FetchersOfProcess(as_measured_fetchers(sources))
    return metrics_page(here.measure(), here.check())


def metrics_page(workers: Iterable[WorkerMetrics], health: Iterable[WorkerHealth]) -> str:
    """Return the page /metrics: each metric once, with a line for each worker, shard or producer."""
    found = list(health)
    healths, producers = [each for each in found if not each.producer], [each for each in found if each.producer]
    lines: list[str] = []
    if healths or not producers:
        of_worker = [(_labels(MetricOrigin(each.process, job=each.job)), each) for each in healths]
        lines += metric_lines(*_UP, [f"{{{labels}}} {int(each.responds)}" for labels, each in of_worker])
        lines += metric_lines(*_READY, [f"{{{labels}}} {int(each.is_ready)}" for labels, each in of_worker])
    if producers:
        lines += metric_lines(
            *_PRODUCER_READY, [f"{{{_producer(each.producer)}}} {int(each.is_ready)}" for each in producers]
        )
    for metrics, rows in exported_tables(list(workers)):
        labelled = [(_labels(origin), values) for origin, values in rows]
        for metric in metrics:
            kind = str(metric.type) if metric.type in (MetricType.COUNTER, MetricType.HISTOGRAM) else "gauge"
            lines += metric_lines(metric.prometheus_name, kind, metric.description, _samples(metric, labelled))
    return "".join(lines)


def metric_lines(name: str, kind: str, description: str, samples: list[str]) -> list[str]:
    """Return the lines of a metric. `samples`: its sample lines without the name."""
    escaped = description.replace("\\", "\\\\").replace("\n", "\\n")
    return [f"# HELP {name} {escaped}\n# TYPE {name} {kind}\n", *[f"{name}{sample}\n" for sample in samples]]


def _samples(metric: ExportedMetric, rows: list[Row]) -> list[str]:
    """Return the samples of a metric for `metric_lines`. Unknown values have no sample."""
    source, number = metric.source, metric.number
    if metric.type is MetricType.TEXT:
        given = [(labels, values.get(source)) for labels, values in rows]
        return [f'{{{labels},{metric.stem}="{escaped_label(text)}"}} 1' for labels, text in given if text is not None]
    if metric.type is MetricType.HISTOGRAM:
        found = [(labels, metric.histogram(values.get(source))) for labels, values in rows]
        return [line for labels, value in found if value is not None for line in _histogram(labels, value)]
    numbers = [(labels, number(values.get(source))) for labels, values in rows]
    return [f"{{{labels}}} {value!r}" for labels, value in numbers if value is not None]


def _histogram(labels: str, value: HistogramValue) -> Iterator[str]:
    """Yield the samples of one histogram. In Prometheus the count of a bucket includes all lower buckets."""
    total = 0
    for bound, count in zip([*value["bounds"], inf], value["counts"], strict=True):
        total += count
        yield f'_bucket{{{labels},le="{"+Inf" if bound == inf else repr(bound)}"}} {total}'
    yield f"_sum{{{labels}}} {value['sum']!r}"
    yield f"_count{{{labels}}} {total}"


def _producer(name: str) -> str:
    return f'producer="{escaped_label(name)}"'


def _labels(origin: MetricOrigin) -> str:
    if origin.producer:
        return _producer(origin.producer)
    stream, shard = escaped_label(origin.stream), escaped_label(origin.shard)
    # Not `job`, which Prometheus sets itself to the name of the scrape.
    job = f'job_name="{escaped_label(origin.job)}",' if origin.job else ""
    return job + (f'stream="{stream}",shard="{shard}",' if shard else "") + f'process="{origin.process}"'


def escaped_label(text: str) -> str:
    """Return a text escaped for use as the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
