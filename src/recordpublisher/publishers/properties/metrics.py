"""The properties of metrics that leave the process (A1)."""

from __future__ import annotations

from .property_types import boolean, integer, text

_GROUP = "Metrics"

METRICS_EXPORTERS = text(
    "flink.metrics.exporters",
    "Where metrics go, comma-separated: prometheus (a page to scrape, with health), cloudwatch (log lines), opentelemetry (OTLP), "
    "or a plugin's names.",
    group=_GROUP,
)
PROMETHEUS_ADDRESS = text(
    "flink.metrics.prometheus.address",
    "host:port of the pages /metrics, /healthz and /readyz; only programs of this machine reach the default. Port 0: any free port.",
    "127.0.0.1:9249",
    group=_GROUP,
)
METRICS_INTERVAL = integer(
    "flink.metrics.interval",
    "How often an exporter that sends metrics does so: cloudwatch, opentelemetry.",
    60_000,
    1000,
    unit="ms",
    group=_GROUP,
)
CLOUDWATCH_FILE = text(
    "flink.metrics.cloudwatch.file",
    "The file to which lines in CloudWatch's embedded metric format are appended; - is stdout.",
    "-",
    group=_GROUP,
)
CLOUDWATCH_NAMESPACE = text(
    "flink.metrics.cloudwatch.namespace", "The namespace of the metrics in CloudWatch.", "recordpublisher", group=_GROUP
)
CLOUDWATCH_SHARDS = boolean(
    "flink.metrics.cloudwatch.shards",
    "Whether the metrics of each shard are written too; CloudWatch bills each metric of each shard.",
    False,
    group=_GROUP,
)
OPENTELEMETRY_ENDPOINT = text(
    "flink.metrics.opentelemetry.endpoint",
    "The URL to which metrics are posted by OTLP over HTTP; without it, what OTEL_EXPORTER_OTLP_ENDPOINT and the like say.",
    group=_GROUP,
)
