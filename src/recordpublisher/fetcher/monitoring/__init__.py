"""What a person is told: metrics, alarms, the status line. Start at `monitor.py`."""
