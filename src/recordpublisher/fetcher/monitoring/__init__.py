"""The view of operators on a fetcher: metrics, alarms, and the status line in the log. Start at `shard_view.py` or `alarm_monitor.py`."""
