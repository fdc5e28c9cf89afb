"""Declares the properties of metrics and traces that leave the process (A1)."""

from ..property_types import PropertyGroup

METRICS = PropertyGroup("Metrics")
METRICS_EXPORTERS = METRICS.text(
    "flink.metrics.exporters",
    "Where metrics go, comma-separated: prometheus (a page to scrape, with health), cloudwatch (log lines), opentelemetry (OTLP), "
    "or a plugin's names.",
)
PROMETHEUS_ADDRESS = METRICS.text(
    "flink.metrics.prometheus.address",
    "host:port of the pages /metrics, /healthz and /readyz. Port 0: any free port.",
    "127.0.0.1:9249",
)
METRICS_INTERVAL = METRICS.integer(
    "flink.metrics.interval",
    "How often cloudwatch and opentelemetry send.",
    60_000,
    minimum=1000,
    unit="ms",
)
CLOUDWATCH_FILE = METRICS.text(
    "flink.metrics.cloudwatch.file",
    "The file for lines in CloudWatch's embedded metric format; - is stdout.",
    "-",
)
CLOUDWATCH_NAMESPACE = METRICS.text(
    "flink.metrics.cloudwatch.namespace", "The namespace of the metrics in CloudWatch.", "recordpublisher"
)
CLOUDWATCH_SHARDS = METRICS.boolean(
    "flink.metrics.cloudwatch.shards",
    "Whether the metrics of each shard are written too; CloudWatch bills each.",
    False,
)
OPENTELEMETRY_ENDPOINT = METRICS.text(
    "flink.metrics.opentelemetry.endpoint",
    "The URL to which metrics are posted by OTLP over HTTP; without it, what OTEL_EXPORTER_OTLP_ENDPOINT and the like say.",
)
CATCH_UP = METRICS.integer(
    "flink.metrics.catchup",
    "ELASTIC: in what time a group that is behind should reach the tip, for workersWanted.",
    600_000,
    minimum=1000,
    unit="ms",
)
TRACING = PropertyGroup("Traces")
TRACING_FIELD = TRACING.text(
    "flink.tracing.context.field",
    "The field of JSON payloads with the trace context (W3C's traceparent, or an object with it), where KinesisSink "
    "puts it.",
)
TRACING_FUNCTION = TRACING.text(
    "flink.tracing.context.function",
    "A function of a Record, as module:function, that returns its trace context: headers by name, or None.",
)
TRACING_SPANS = TRACING.choice(
    "flink.tracing.spans",
    "The spans of a write or of a handler's list: one with links to the records' contexts, or also one for each record.",
    "BATCH",
    ("BATCH", "RECORD"),
)
