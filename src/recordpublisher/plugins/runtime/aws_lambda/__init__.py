"""MapSink's handler as a function of AWS Lambda. Start at `handler.py`."""
