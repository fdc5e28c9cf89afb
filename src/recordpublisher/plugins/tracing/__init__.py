"""Traces of OpenTelemetry: whether there are any, and the trace context in payloads (`traces.py`); spans around calls (`spans.py`)."""
