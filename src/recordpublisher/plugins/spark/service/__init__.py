"""The driver's calls to Kinesis: listing, time, retention, fan-out consumers, watching quiet shards. Start at `planning_service.py`."""
