"""Defines `MetricsExporter`, which plugins implement to send metrics elsewhere, and reads the metrics that a sink exports."""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from typing import Any, Protocol

import msgspec

from recordpublisher.publishers.async_port import AsyncPort
from recordpublisher.publishers.histogram import is_histogram
from recordpublisher.publishers.user_code import describe_error, exc_info_for_log

from ..metric_types import MetricType, SinkMetric, is_number
from ..sink import Sink


class MetricsExporter(AsyncPort, ABC):
    """Sends the metrics of a machine's workers to a monitoring system.

    `flink.metrics.exporters` selects the exporters of a job. Each is built with the job's properties as its only argument.

    An exporter runs in the event loop of the job, so blocking calls must run in a thread. Failures after `open` are logged, and do not end
    the job.
    """

    @abstractmethod
    async def open(self, source: MetricsSource) -> None:
        """Start the exporter. Raises: ConfigurationError if a setting cannot be used."""

    @abstractmethod
    async def close(self) -> None:
        """Send the metrics that were not sent yet, and stop the exporter. Called once, even after a failed `open`."""


class WorkerMetrics(msgspec.Struct, frozen=True):
    """The metrics of one worker or producer at one moment, as `DataFetcher.metrics()` returns them.

    A producer has only the metrics of its sink.

    - `process`: the number of the process on its machine.
    - `values`: the metrics of the worker by name.
    - `shards`: the metrics of each shard by `stream/shard-id`.
    - `sink`: the metrics of the sink.
    - `producer`: the name of the producer: its stream, with a number if the process has several for one stream. Empty for a worker.
    - `job`: `flink.job.name` of the worker's job; empty if it is not set, and for a producer.
    """

    process: int
    values: dict[str, Any]
    shards: dict[str, dict[str, Any]]
    sink: list[SinkMetric] = []
    producer: str = ""
    job: str = ""


class WorkerHealth(msgspec.Struct, frozen=True):
    """Whether the event loop of a worker or producer responds, and why it is not ready.

    - `process`: the number of the process on its machine.
    - `not_ready`: the reasons why it is not ready, as sentences for people. Empty if it is ready.
    - `producer`: the name of the producer; empty for a worker.
    - `job`: `flink.job.name` of the worker's job; empty if it is not set, and for a producer.
    """

    process: int
    responds: bool
    not_ready: list[str]
    producer: str = ""
    job: str = ""

    @property
    def name(self) -> str:
        """The name of the worker or producer in messages."""
        of_job = f" of job {self.job}" if self.job else ""
        return f"producer {self.producer}" if self.producer else f"worker {self.process}{of_job}"

    @property
    def is_ready(self) -> bool:
        """Whether the worker responds and is ready."""
        return self.responds and not self.not_ready


class MetricsSource(Protocol):
    """Returns the metrics and the health of the workers of one machine. The methods never raise an error."""

    async def metrics(self) -> list[WorkerMetrics]:
        """Return the current metrics, without workers that do not respond."""

    async def health(self) -> list[WorkerHealth]:
        """Return the current health of every worker."""


# SinkMetrics reads the metrics that a sink exports. A sink that raises there does not end its job.

log = logging.getLogger("recordpublisher.metrics")


class SinkMetrics:
    """Reads the metrics that a sink exports. If the sink raises errors, the first one is logged."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._has_warned = False

    def read(self) -> list[SinkMetric]:
        """Return the metrics of the sink, or an empty list if the sink raises an error. Only the first such error is logged."""
        try:
            return checked_metrics(self._sink)
        except Exception as error:
            if not self._has_warned:
                self._has_warned = True
                line = "the sink %s exports no metrics, because its exported_metrics failed: %s"
                log.warning(line, type(self._sink).__name__, describe_error(error), exc_info=exc_info_for_log(error))
            return []


def checked_metrics(sink: Sink) -> list[SinkMetric]:
    """Return the metrics of a sink.

    Raises: TypeError if one of them is not a valid metric, or has the name of another one; the errors of the sink.
    """
    metrics = [_checked(each) for each in sink.exported_metrics()]
    names: dict[str, str] = {}
    for name in (each.name for each in metrics):
        # Exporters write `cacheHits` and `cache_hits` alike, and would send one of the two values, or a name twice.
        key = name.replace("_", "").lower()
        if (other := names.get(key)) is not None:
            words = f"two metrics have the name {name}" if name == other else f"{other} and {name} are one name"
            raise TypeError(f"{words}: give each metric a name of its own")
        names[key] = name
    return metrics


_NAME = re.compile("[A-Za-z][A-Za-z0-9_]*")
_TYPES = (MetricType.COUNTER, MetricType.GAUGE, MetricType.FLAG, MetricType.HISTOGRAM)


def _checked(given: object) -> SinkMetric:
    """Check a metric that a sink exports, and return a copy with a plain number instead of, for example, a number of numpy.

    Raises: TypeError if `given` is not a `SinkMetric`, or if one of its fields is not valid.
    """
    if not isinstance(given, SinkMetric):
        raise TypeError(f"it returned {given!r:.80}, which is not an rp.SinkMetric")
    if given.type not in _TYPES:
        raise TypeError(f"the type of {given.name} is {given.type!r:.80}, and not one of {', '.join(_TYPES)}")
    if not isinstance(given.name, str) or not _NAME.fullmatch(given.name):
        raise TypeError(
            f"the name of a metric is {given.name!r:.80}, and not letters, digits and _ that begin with a letter"
        )
    if not isinstance(given.unit, str) or not isinstance(given.description, str):
        raise TypeError(f"the unit and the description of {given.name} must be text: {given!r:.200}")
    is_valid = is_histogram if given.type == MetricType.HISTOGRAM else is_number
    if given.value is not None and not is_valid(given.value):
        raise TypeError(f"the value of {given.name} is {given.value!r:.80}, not a {given.type}")
    # A subclass, such as a number of numpy, can neither be sent to the supervisor nor be written as text.
    kind: Any = next((each for each in (bool, int, float) if isinstance(given.value, each)), None)
    value = given.value if kind is None else kind(given.value)
    # The type may be its text, and exporters compare members.
    return msgspec.structs.replace(given, type=MetricType(given.type), value=value)
