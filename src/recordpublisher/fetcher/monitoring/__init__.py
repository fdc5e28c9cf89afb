"""What operators see: metrics, alarms, the status line in the log. Start at `metrics.py` or `alarm_monitor.py`."""
