"""Traces of OpenTelemetry: the trace context in payloads (`trace_context.py`), and spans around calls with records (`spans.py`)."""
