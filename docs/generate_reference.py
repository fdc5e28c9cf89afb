"""Writes the reference pages that come from the code: public names by area, metrics, and the command line. Run by `make docs`."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from textwrap import wrap
from typing import Any

import typer

import recordpublisher as rp
from recordpublisher.cli.app import app
from recordpublisher.fetcher.monitoring.metrics_exporter import WorkerMetrics
from recordpublisher.fetcher.monitoring.shard_view import SHARD_METRICS
from recordpublisher.fetcher.monitoring.worker_view import WORKER_METRICS
from recordpublisher.fetcher.sink import SinkMetric
from recordpublisher.plugins.metrics.export import EXPORTED_SHARD_METRICS, EXPORTED_WORKER_METRICS, exported_tables
from recordpublisher.plugins.sinks.map.handling import MAP_SINK_METRICS
from recordpublisher.plugins.spark.options.other_connectors import PeerOption, peer_options

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- made by make docs from the code: change the code, not this page -->"

AREAS = {
    "reading": (
        "Reading",
        ["DataFetcher", "consume", "Records", "stream", "BoundedResult",
         "EndReason", "read_arrow", "read_polars", "read_pandas", "to_arrow", "lambda_handler",
         "export_metrics", "metrics_text", "reset_positions", "Alarm",
         "AlarmKind"],
    ),
    "records": (
        "Records and shards",
        ["Record", "RecordBatch", "UserRecord", "Json", "Avro", "Protobuf", "Shard", "HashRange",
         "SequenceNumber", "StartingPosition", "PositionType"],
    ),
    "sinks": (
        "Sinks",
        [
            "Sink", "SinkContext", "CommittingSink", "Staged", "Leftover", "CommitNumber", "SinkMetric", "MetricType",
            "Histogram", "HistogramValue", "Checkpoint",
            "State", "RevocationReason", "Unfinished",
            "UnfinishedShard",
            "MemorySink", "ReactiveSink", "CallbackSink", "MapSink", "JsonlSink", "ParquetSink", "DeltaSink",
            "IcebergSink",
            "SqlSink", "KinesisSink", "Producer", "SinkStatistics", "FailedRecord",
        ],
    ),
    "settings": ("Settings", ["Properties", "Property", "Settings", "JobSettings", "UnknownPropertyWarning"]),
    "plugins": (
        "What plugins implement",
        [
            "RecordPublisher", "RecordPublisherFactory", "QueueSource", "RunResult", "BatchConsumer", "Checks",
            "OldestRecord", "ShardMetrics",
            "MetricsExporter", "MetricsSource", "WorkerMetrics", "WorkerHealth",
            "ConditionalStore", "VersionedValue", "FolderStore", "Deserializer", "hookimpl", "Registrar", "Registry", "publisher_class",
        ],
    ),
    "testing": ("Tests", []),
}  # fmt: skip
"""Every name of `recordpublisher.__all__` that is no error, once."""

FURTHER = {
    "reading": [
        ("fetcher.pipeline.bounded_runs", ["BoundedResult", "ShardOutcome", "EndReason", "Bounds"]),
        ("fetcher.monitoring.worker_view", ["WorkerProgress"]),
    ],
    "plugins": [
        ("plugins.host.registry", ["Registrar"]),
        ("consumer.watermark_strategies", ["WatermarkStrategy"]),
        ("publishers.retry", ["call_with_retries", "RetryPolicy"]),
        ("publishers.errors", ["ConfigurationError"]),
        (
            "publishers.properties",
            ["text", "choice", "integer", "optional_integer", "number", "boolean", "prefix", "PropertyOptions"],
        ),
    ],
    "testing": [
        (
            "testing",
            [
                "record", "batch_of", "archive_of", "run_virtual", "VirtualClock", "VirtualLoop", "EPOCH_MS",
                "Contract", "PublisherContract", "PublisherCase", "QueueSourceContract", "QueueSourceCase",
                "SinkContract", "CommittingSinkContract", "SinkCase",
                "DeserializerContract", "DeserializerCase", "ConditionalStoreContract", "ConditionalStoreCase",
            ],
        ),
        (
            "local",
            [
                "serve_in_thread", "LocalKinesisThread", "LocalStream", "LocalKinesis", "in_memory", "MemoryTransport", "Account",
                "ManualClock", "Clock", "SystemClock", "Quotas", "Delays", "Faults", "FaultKind", "FaultRule", "StreamFault",
            ],
        ),
    ],
}  # fmt: skip
"""Names that users meet below the top: by module, under `recordpublisher`."""


HOOKS = [
    function
    for name, function in vars(import_module("recordpublisher.plugins.host.hookspecs")).items()
    if "_register_" in name
]


def pages() -> dict[str, Callable[[], str]]:
    """What makes each generated page, by the page's file name."""
    areas = {f"python/{area}.md": partial(_area_page, area) for area in AREAS}
    return areas | {
        "command-line.md": _command_line_page,
        "iam-policies.md": _page_of("docs/iam_policies.py").page,
        "errors.md": _page_of("docs/errors_page.py").page,
        "metrics.md": _metrics_page,
        "properties.md": _page_of("docs/properties_page.py").page,
        "spark-options.md": _spark_options_page,
    }


def _area_page(area: str) -> str:
    title, names = AREAS[area]
    parts = [f"# {title}", AREA_WORDS if area == "reading" else READ_FIRST]
    if area == "plugins":
        parts += [PLUGIN_WORDS, HOOKS_WORDS, "\n".join(map(ENTRIES.hook, HOOKS))]
    if area == "testing":
        parts += [FIXTURES_WORDS, "\n".join(ENTRIES.fixtures(REFERENCE.parents[1] / "src/pytest_recordpublisher.py"))]
    parts += [ENTRIES.entry(name, getattr(rp, name)) for name in names]
    for module_name, further in FURTHER.get(area, []):
        module = import_module(f"recordpublisher.{module_name}")
        parts.append(f"## From `{module.__name__}`")
        parts += [ENTRIES.entry(name, getattr(module, name), level=3) for name in further]
    return "\n\n".join([*parts, NOTE]) + "\n"


AREA_WORDS = """The names of `import recordpublisher as rp`. Of each member this page has the first sentence; `help(rp.Sink.flush)` has
the rest, and the errors raised. A member without `->` returns nothing. What a class implements for its base class is explained there."""

READ_FIRST = "How to read it: [reading](reading.md)."

PLUGIN_WORDS = """`recordpublisher new-plugin publisher|queue|sink|committing-sink|store|deserializer NAME` writes a package that works:
the class, the hook that registers it, and a test of its [contract](testing.md)."""


FIXTURES_WORDS = """## Fixtures

pytest has them with the extra `pytest`. A test is annotated with these types
([example](../../how-to/test-your-job.md#annotate-the-tests))."""

HOOKS_WORDS = (
    "## Hooks\n\nA plugin implements the hook of each thing that it adds. Each hook gets a [`Registrar`](#registrar)."
)


WORKER_SUBJECTS = {
    "localWatermark": "Watermark",
    "records": "Records and checkpoints",
    "loopLagMs": "Process and memory",
    "shards": "Shards and alignment",
    "alarms": "Alarms",
    "worker": "Group",
    "skippedRecords": "Loss and late records",
}
SHARD_SUBJECTS = {
    "lagMs": "Progress",
    "watermark": "Watermark and queue",
    "idle": "Idleness and alignment",
    "timeToRetentionLossMs": "Retention and alarms",
    "numberOfAggregatedRecords": "Reads",
    "foreignSubRecords": "Loss, bad and late records",
    "unacknowledged": "Queues",
}
"""The heading before a metric."""

LOSS = {each.name: each.loss for each in SHARD_METRICS if each.loss} | {
    "skipped": '`MapSink` has left records out (`on_failure="SKIP"`, `max_age`)',
    "numRecordsOutErrors": "the [Kinesis sink](kinesis-sink-metrics.md) could not put records",
    "timeToRetentionLossMs": "below 0, the oldest unfinished record may be lost; above 0, it is the time that is left",
}
"""What it means that a metric is not 0."""


def _metrics_page() -> str:
    tables = [
        f"## {title}\n\n{_metric_rows(table, exported, subjects)}"
        for title, table, exported, subjects in (
            ("Of a worker", WORKER_METRICS, EXPORTED_WORKER_METRICS, WORKER_SUBJECTS),
            ("Of a shard", SHARD_METRICS, EXPORTED_SHARD_METRICS, SHARD_SUBJECTS),
        )
    ]
    of_map = [SinkMetric(name, *words, None) for name, words in MAP_SINK_METRICS.items()]
    exported = exported_tables([WorkerMetrics(0, {}, {}, of_map)])[1][0]
    tables.append(f"## Of `MapSink`\n\n{MAP_WORDS}\n\n{TABLE_HEAD}\n{_metric_rows(of_map, exported, {})}")
    loss = "\n".join(f"    - `{name}`: {words}" for name, words in LOSS.items())
    return "\n\n".join(["# Metrics", METRICS_WORDS, f"{LOSS_WORDS}\n\n{loss}", *tables, NOTE]) + "\n"


def _metric_rows(table: Iterable[Any], exported: Iterable[Any], subjects: Mapping[str, str]) -> str:
    lines = []
    for one, other in zip(table, exported, strict=True):
        if one.name in subjects:
            lines += ["", f"### {subjects[one.name]}", "", TABLE_HEAD]
        mark = "**Loss:** " if one.name in LOSS else ""
        kind = f"{one.type}{', ' * bool(one.unit)}{one.unit}"
        lines.append(f"| `{one.name}` | {kind} | {mark}{one.description} | `{other.prometheus_name}` |")
    return "\n".join(lines).lstrip("\n")


TABLE_HEAD = "| name | type, unit | meaning | in Prometheus |\n|---|---|---|---|"

METRICS_WORDS = """What a job counts and measures. `fetcher.metrics()` returns a plain dict:
`{"worker": {...}, "shards": {"orders/shardId-000000000000": {...}}}`. What to watch: [monitor a job](../operate/watch-a-job.md).
The [Kinesis sink](kinesis-sink-metrics.md) and [Spark](../spark/monitor.md#what-the-progress-has) have their own.

- Null means: not known yet. Counters start at 0 with each start.
- Gauges of time (`lagMs`, `lastEmitAgeMs` ...) keep growing while a shard is silent or held.
- Each process has its own values. Counters, records, bytes and shards add up over the processes of a job, and so does `workersWanted`.
  Watermarks, lags and ages do not add up, nor do `unownedShards` and `unownedMs`: take the value of the worst process.
- Prometheus gets seconds and bytes, with the labels `job_name`, `process`, `stream` and `shard`
  ([export](../operate/export-metrics.md)). A text becomes a label of a metric that is always 1:
  `recordpublisher_shard_stage_info{...,stage="READING"} 1`.
- A histogram has the upper `bounds` of its buckets, their `counts` (the last is of values above all bounds) and the `sum`. Prometheus gets
  it as a histogram: `histogram_quantile(0.99, rate(recordpublisher_worker_write_delay_seconds_bucket[5m]))`.
- Names are Flink's where Flink has them."""

LOSS_WORDS = """!!! warning
    These metrics tell of records that were lost or left out. The tables mark them with **Loss**."""

MAP_WORDS = "`sink.metrics()` of a [`MapSink`](../how-to/handle-each-record.md) returns a plain dict."


def _spark_options_page() -> str:
    tables = [
        f"## {name}\n\n| theirs | ours | values; their default, where it differs |\n|---|---|---|\n"
        + "\n".join(
            [*map(_spark_option_row, (option for option in options if not option.refused)), *_refusals(options)]
        )
        for name, options in peer_options().items()
    ]
    return "\n\n".join(["# Options of other connectors for Spark", SPARK_OPTIONS_WORDS, *tables, NOTE]) + "\n"


def _refusals(options: Iterable[PeerOption]) -> list[str]:
    """A row for each reason, with all options that are refused for it."""
    keys: dict[str, list[str]] = {}
    for option in options:
        if option.refused:
            keys.setdefault(option.refused, []).append(f"`{option.key}`")
    return [f"| {', '.join(refused)} | refused | {reason} |" for reason, refused in keys.items()]


def _spark_option_row(option: PeerOption) -> str:
    values = ", ".join(f"{theirs}: {ours}" for theirs, ours in option.values.items())
    unit = f"in {option.unit}" if option.unit else f"before the value of `{option.before}`" if option.before else ""
    ours = ", ".join([f"`{option.ours}`", *(f"`{key}={value}`" for key, value in option.also.items())])
    default = f"default: {option.default}" if option.default else ""
    return f"| `{option.key}` | {ours} | {'; '.join(filter(None, [values or unit, default]))} |"


SPARK_OPTIONS_WORDS = """`format("kinesis")` takes the options of three other connectors, and of Spark for Kafka, by their keys and values,
compared without case. Move a job [from awslabs](../migrate/from-awslabs.md), [qubole](../migrate/from-qubole.md),
[Databricks](../migrate/from-databricks.md).

- An option that has no equal here is an error, which says what to use instead.
- Where the default of another connector differs, ours holds, and a warning names both.
- An endpoint of AWS also sets the region.
- To write, rename the columns `value` and `key` of a Kafka job to `data` and `partitionKey`.

The keys are those of the version in the heading; Databricks' list was seen in a copy."""


def _command_line_page() -> str:
    group: Any = typer.main.get_command(app)
    commands = _commands("recordpublisher", group)
    common = _common_options(commands.values())
    local = _without(commands, "--region")
    job = [name for name in _without(commands, "--properties") if name not in local]
    parts = [
        "# Command line",
        COMMAND_LINE_WORDS.format(local=", ".join(local), job=", ".join(job)),
        f"```text\n{_told(common)}\n```",
        f"## recordpublisher\n\n```text\n{_help('recordpublisher', group)}\n```",
    ]
    for name, one in commands.items():
        if hasattr(one, "commands"):
            parts.append(f"## {name}\n\n{one.help.splitlines()[0]}")
            continue
        own = copy(one)
        own.params = [
            option for option in one.params if option.param_type_name != "option" or _described(option) not in common
        ]
        own.add_help_option = False
        parts.append(f"## {name}\n\n```text\n{_help(name, own)}\n```")
    return "\n\n".join([*parts, NOTE]) + "\n"


def _without(commands: Mapping[str, Any], option: str) -> list[str]:
    """The commands without this option; one with commands below it stands for these."""
    names = [
        name
        for name, one in commands.items()
        if not hasattr(one, "commands") and option not in {word for parameter in one.params for word in parameter.opts}
    ]
    return list(dict.fromkeys(f"`{name.split()[1]}`" for name in names))


def _common_options(commands: Iterable[Any]) -> dict[tuple[str, str], Any]:
    """The options that eight commands or more have with the same words."""
    found = [option for one in commands for option in one.params if option.param_type_name == "option"]
    counts = Counter(map(_described, found))
    return {_described(option): option for option in found if counts[_described(option)] >= 8}


def _described(option: Any) -> tuple[str, str]:
    return max(option.opts, key=len), getattr(option, "help", None) or ""


def _told(common: Mapping[tuple[str, str], Any]) -> str:
    return "\n".join(f"{', '.join(sorted(option.opts, key=len)):<24}  {words}" for (_, words), option in common.items())


def _help(name: str, one: Any) -> str:
    """The help without what the page says once: types, what is required, the commands below, what every command has."""
    text = str(one.get_help(one.context_class(one, info_name=name, terminal_width=10_000, max_content_width=10_000)))
    usage, *lines = text.partition("\nCommands:")[0].splitlines()
    arguments = usage.removeprefix(f"Usage: {name}").replace(" [OPTIONS]", "").replace(" COMMAND [ARGS]...", "")
    shown = [f"{name}{arguments}"] if arguments else []
    shown += [piece for line in lines for piece in _help_line(TOLD_ONCE.sub(r"\3", TOLD_ONCE.sub(r"\3", line)))]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(shown)).strip()


TOLD_ONCE = re.compile(
    r" <(?:str|path|int range|float range|list\[\w+\])>|^(Arguments|Options):$|"
    r"^  \S.*  (The stream's name or ARN)\..*|^  (?:STREAM\|)?JOB\.properties\|MODULE:NAME <str>$|"
    r"^ {3,}(?:The job's properties, or a program's DataFetcher|A stream's name or ARN, or a job)\..*|"
    r"(?<= publisher\|sink\|store\|deserializer) \S+|^(  [^-].*)  \[required\]"
)
"""Types, headings, arguments that the top of the page explains, and that an argument is required."""


def _help_line(line: str) -> list[str]:
    """A line of a help, wrapped; the words about an option stand below each other."""
    found = re.fullmatch(r"  (\S.*?) {2,}(\S.*)", line)
    if found is None:
        return wrap(line.strip(), 110) or [""]
    words = wrap(found[2], 108, initial_indent=" " * 22, subsequent_indent=" " * 22)
    return [f"{found[1]:<20}  {words[0].strip()}", *words[1:]] if len(found[1]) <= 20 else [found[1], *words]


def _commands(name: str, group: Any) -> dict[str, Any]:
    """Every command below a group, each followed by those below it."""
    found: dict[str, Any] = {}
    for last, one in group.commands.items():
        found[f"{name} {last}"] = one
        found |= _commands(f"{name} {last}", one) if hasattr(one, "commands") else {}
    return found


def _page_of(path: str) -> Any:
    """A module that is in no package, by its path in the project."""
    file = REFERENCE.parents[1] / path
    spec: Any = spec_from_file_location(f"page_of_{file.stem}", file)
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ENTRIES = _page_of("docs/reference_entries.py")


COMMAND_LINE_WORDS = """What each command does, with its options. They need the extra `cli`; `python -m recordpublisher` is the same.

- Results go to stdout, everything else to stderr. An error is one line; `--debug` shows the traceback.
- Exit codes: 0 finished, 1 failed, 2 bad configuration, 3 alarm.
- `STREAM` is a name or an ARN, `JOB.properties` the file of a job, `MODULE:NAME` a program's `DataFetcher`
  ([run](#recordpublisher-run)). An argument in brackets may be left out.

Each section has a command's own arguments and options. Every command also has `-h` and the first three of these options. The others
belong to all commands except {local}; {job} have no `--properties`."""


def main() -> None:
    for name, make in pages().items():
        (REFERENCE / name).write_text(make(), encoding="utf-8")
        sys.stdout.write(f"docs/reference/{name}\n")


if __name__ == "__main__":
    main()
