"""Traces of OpenTelemetry: spans around handlers and writes (`spans.py`), and the trace context in payloads (`payload_context.py`)."""
