"""Reads the metrics that a sink exports. A sink that fails to give them does not end its job."""

import logging

from recordpublisher.publishers.user_code import describe_error, for_log

from ..metric_types import SinkMetric
from ..sink import Sink

log = logging.getLogger("recordpublisher.metrics")


class SinkMetrics:
    """Calls `exported_metrics` of a sink. Owns whether it has warned of a sink that raises there."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._has_warned = False

    def read(self) -> list[SinkMetric]:
        """Return the metrics of the sink, or [] if the sink raises; the first such error is logged as a warning."""
        try:
            return list(self._sink.exported_metrics())
        except Exception as error:
            if not self._has_warned:
                self._has_warned = True
                line = "the sink %s exports no metrics, because its exported_metrics failed: %s"
                log.warning(line, type(self._sink).__name__, describe_error(error), exc_info=for_log(error))
            return []
