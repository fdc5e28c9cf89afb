"""A job that reads a queue and acknowledges each record when it is safe. It has no shards, positions, order or time.

- `job.py`: the job, which is where to start: the tasks that run, and how a run ends.
- `receivers.py`: how many receivers call, and the way of a record from its receipt to the sink.
- `in_flight.py`: the received records that are not finished, and the calls that acknowledge, prolong and release them.
- `view.py`: metrics, progress, readiness and alarms.
"""
