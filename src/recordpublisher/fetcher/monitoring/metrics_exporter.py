"""MetricsExporter: the port through which metrics leave the process; a plugin implements it."""

from abc import ABC, abstractmethod
from typing import Any, Protocol

import msgspec

from recordpublisher.publishers.user_code import AsyncPort

from ..metric_types import SinkMetric


class SubtaskMetrics(msgspec.Struct, frozen=True):
    """The metrics of one subtask at one moment, as in `DataFetcher.metrics()`: `values` by name, `shards` by `stream/shard-id`,
    and those that its `sink` has."""

    subtask: int
    values: dict[str, Any]
    shards: dict[str, dict[str, Any]]
    sink: list[SinkMetric] = []


class SubtaskHealth(msgspec.Struct, frozen=True):
    """Whether a subtask's event loop responds, and why the subtask is not ready; no reason means that it is."""

    subtask: int
    responds: bool
    not_ready: list[str]

    @property
    def is_ready(self) -> bool:
        """Whether it responds and has no reason against it."""
        return self.responds and not self.not_ready


class MetricsSource(Protocol):
    """The subtasks of one machine. It never raises."""

    async def metrics(self) -> list[SubtaskMetrics]:
        """The metrics now, without subtasks that do not respond."""

    async def health(self) -> list[SubtaskHealth]:
        """The health of every subtask now."""


class MetricsExporter(AsyncPort, ABC):
    """Takes the metrics of a machine's subtasks out of the process. Selected by `flink.metrics.exporters`, built with the properties.

    It runs in the event loop of the job: whatever blocks belongs into a thread. What fails after `open` is logged.
    """

    @abstractmethod
    async def open(self, source: MetricsSource) -> None:
        """Start. Raises: ConfigurationError when a setting cannot be used."""

    @abstractmethod
    async def close(self) -> None:
        """Stop, and send what is left. Called once, also after a failed `open`."""
