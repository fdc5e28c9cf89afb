"""A job that reads a queue, and acknowledges each record when the sink has stored it. It has no shards, positions, order or event time.

- `job.py`: the tasks of the job, and how a run ends. Start there.
- `receivers.py`: how many receivers call the queue, and how a received record gets to the sink.
- `in_flight.py`: the received records that are not finished, and the calls that acknowledge, prolong and release them.
- `queue_metrics.py`: metrics, progress and readiness.
- `job_alarms.py`: alarms.
"""
