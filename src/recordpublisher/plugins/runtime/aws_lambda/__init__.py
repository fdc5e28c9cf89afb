"""Runs the handler of `MapSink` as a function of AWS Lambda. Start at `handler.py`."""
