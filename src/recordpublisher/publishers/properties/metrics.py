"""The properties of metrics that leave the process (A1)."""

from __future__ import annotations

from .property_types import text

_GROUP = "Metrics"

METRICS_EXPORTERS = text(
    "flink.metrics.exporters",
    "Where metrics go, comma-separated: prometheus (a page to scrape, with health), or a plugin's names.",
    group=_GROUP,
)
PROMETHEUS_ADDRESS = text(
    "flink.metrics.prometheus.address",
    "host:port of the pages /metrics, /healthz and /readyz; only programs of this machine reach the default. Port 0: any free port.",
    "127.0.0.1:9249",
    group=_GROUP,
)
