"""What the driver asks of Kinesis. Start at `ports.py`."""
