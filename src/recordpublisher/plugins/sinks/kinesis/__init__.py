"""The Kinesis sink: puts records into a stream with bounded memory, optionally in key order, and loses none silently (K1 to K4).

Start at `kinesis_sink.py`. A record goes through `writer.py` (limits), `shard_queues/` (waiting) and `put_records/` (calls and results).
"""

from .failed_records import FailedRecord
from .kinesis_sink import KinesisSink
from .producer import Producer
from .statistics import SinkStatistics

__all__ = ["KinesisSink", "FailedRecord", "Producer", "SinkStatistics"]
