"""What operators see: metrics, alarms, the status line in the log. Start at `shard_view.py` or `alarm_monitor.py`."""
