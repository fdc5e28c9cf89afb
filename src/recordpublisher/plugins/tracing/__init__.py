"""Traces of OpenTelemetry.

`trace_context.py` reads and writes trace contexts in payloads. `spans.py` makes spans around calls with records.
"""
