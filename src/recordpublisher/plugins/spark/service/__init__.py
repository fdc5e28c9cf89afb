"""The driver's calls to Kinesis: listing, time, retention, fan-out consumers, polling of quiet shards. Start at `kinesis_service.py`."""
