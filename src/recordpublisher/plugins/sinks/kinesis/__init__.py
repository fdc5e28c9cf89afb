"""The Kinesis sink: puts records into a stream, bounded, in the order of keys when asked to, never silently losing one (K1 to K4)."""

from .failures import FailedRecord
from .sink import KinesisSink
from .statistics import SinkStatistics

__all__ = ["KinesisSink", "FailedRecord", "SinkStatistics"]
