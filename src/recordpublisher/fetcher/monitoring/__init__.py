"""Metrics, alarms and status lines, with which operators watch a fetcher. Start at `shard_view.py` or `alarm_monitor.py`."""
