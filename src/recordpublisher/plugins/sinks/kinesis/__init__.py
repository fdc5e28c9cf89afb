"""The Kinesis sink: puts records into a stream with bounded memory, optionally in key order, and loses none silently.

- `kinesis_sink.py`: the public sink, which is where to start; `producer.py`: the same for programs without asyncio.
- `writer.py`: accepts a record, and knows when it is acknowledged. It waits while a limit is reached.
- `outstanding_records.py`: these limits; `shard_rate.py`: how fast a shard is sent records.
- `sink_settings.py`: settings, statistics and metrics of the sink.
- `sending.py`: the way of an accepted record in five steps, from the queue of its shard to the result of its PutRecords call;
  `put_results.py`: the results of a call, record by record.
- `shard_queues.py`: which shard takes a record, its queue, and its aggregates.
- `pending_records.py`: a record that is pending or has failed.
"""

from .kinesis_sink import KinesisSink
from .pending_records import FailedRecord
from .producer import Producer
from .sink_settings import SinkStatistics

__all__ = ["KinesisSink", "FailedRecord", "Producer", "SinkStatistics"]
