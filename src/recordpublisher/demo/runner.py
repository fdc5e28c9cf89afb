"""Runs the demo: starts the endpoint, the producer and the Spark job, shows their progress, and checks the output."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.errors import RecordPublisherError

from .producer import DAY_MS, LAGGING, SHARDS, SILENT, SPLIT, TAKES_OVER, flight_counts
from .requirements import check_java, check_packages
from .spark_job import LOOKAHEAD_DAYS, OUT_OF_ORDERNESS_MS

STREAM = "flights"
TOTAL = 336_776
STALL_TIMEOUT_SECONDS = 240.0
"""The demo fails if no new row has arrived for this long. Starting Java on a loaded machine may take most of it."""

HASH_BITS = 128


ROLES = {SPLIT: "is split", LAGGING: "lags", SILENT: "falls silent", TAKES_OVER: "takes over"}
LAG_BAR_DAYS = 100
SECONDS_BETWEEN_LINES = 10.0

QUICK_JAVA = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Java options for a Spark that runs for a few minutes. Without them the compiler and the garbage collector use a third of its CPU."""


def run_demo(config: DemoConfig) -> list[CheckResult]:
    """Run the demo, and return the results of its checks.

    Raises: ImportError if a package is missing; ConfigurationError if Java is missing; DemoFailedError if a process ends too early or
    writes no output.
    """
    check_packages()
    check_java()
    with ExitStack() as stack:
        folder = config.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recordpublisher-demo-")))
        folder.mkdir(parents=True, exist_ok=True)
        progress, title = DemoProgress(TOTAL), f"{TOTAL:,} flights through {config.publisher}"
        display = stack.enter_context(ProgressDisplay(progress, title))
        display.print_line(f"{title}: the endpoint, the producer and the Spark job start")
        endpoint = stack.enter_context(serve_in_thread(streams={STREAM: SHARDS}))
        runner = DemoRunner(config, folder, endpoint.url, progress, display)
        stack.callback(runner.stop)
        runner.run()
        display.print_line("all rows have arrived; reading them back")
        return check_results(progress, folder, LOOKAHEAD_DAYS * DAY_MS + OUT_OF_ORDERNESS_MS)


class DemoRunner:
    """Owns the processes of the producer and of the Spark job."""

    def __init__(
        self, config: DemoConfig, folder: Path, url: str, progress: DemoProgress, display: ProgressDisplay
    ) -> None:
        self._config = config
        self._folder = folder
        self._url = url
        self._progress = progress
        self._display = display
        self._job = self._start_job()
        self._producer = ChildProcess(
            "recordpublisher.demo.producer",
            ["--endpoint", url, "--stream", STREAM, "--seconds", str(config.seconds)],
            folder / "producer.log",
        )
        self._has_killed = not config.kill

    def run(self) -> None:
        """Run the demo until both queries have written every row."""
        began, rows, changed_at = time.monotonic(), 0, 0.0
        while not self._progress.is_complete:
            elapsed = time.monotonic() - began
            self._read_messages()
            self._display.show(elapsed)
            self._kill_when_due()
            self._check_processes()
            if sum(self._progress.rows.values()) != rows:
                rows, changed_at = sum(self._progress.rows.values()), elapsed
            if elapsed - changed_at > STALL_TIMEOUT_SECONDS:
                raise DemoFailedError(self._stall_message())
            time.sleep(0.25)
        self._display.show(time.monotonic() - began)
        self._job.write_line("stop")
        self._job.wait_or_kill(20)

    def stop(self) -> None:
        """Kill both processes."""
        self._job.kill()
        self._producer.kill()

    def _start_job(self) -> ChildProcess:
        given = ["--endpoint", self._url, "--stream", STREAM, "--publisher", self._config.publisher]
        return ChildProcess(
            "recordpublisher.demo.spark_job", [*given, "--folder", str(self._folder)], self._folder / "job.log"
        )

    def _read_messages(self) -> None:
        for message in self._producer.read_messages():
            self._progress.add_producer_report(message)
        for message in self._job.read_messages():
            self._progress.add_query_progress(message)

    def _kill_when_due(self) -> None:
        """Kill the job with SIGKILL when a quarter of the flights have been written, and start it again."""
        if not self._has_killed and self._progress.rows.get("flights", 0) > self._progress.total / 4:
            self._has_killed = True
            self._job.kill()
            self._display.print_line("the Spark job was killed with kill -9 and is started again")
            self._job = self._start_job()

    def _check_processes(self) -> None:
        if self._job.has_ended:
            raise DemoFailedError(f"the Spark job ended early:\n{self._job.log_tail()}")
        if self._producer.has_failed:
            raise DemoFailedError(f"the producer failed:\n{self._producer.log_tail()}")

    def _stall_message(self) -> str:
        rows = ", ".join(f"{name} {count:,}" for name, count in self._progress.rows.items()) or "nothing"
        return f"no new rows for {STALL_TIMEOUT_SECONDS:.0f} s: {rows} of {TOTAL:,}\n{self._job.log_tail()}"


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """Settings of the demo.

    - `seconds`: how many seconds the year of flights takes.
    - `kill`: whether the job is killed in the middle.
    - `folder`: where output and logs are kept; None for a temporary folder.
    """

    publisher: str
    seconds: float
    kill: bool = False
    folder: Path | None = None


class DemoFailedError(RecordPublisherError):
    """The demo could not be run to its end."""


@dataclass
class DemoProgress:
    """Keeps the latest report of each process, and the values that the checks at the end need."""

    total: int
    sent: list[int] = field(default_factory=lambda: [0] * SHARDS)
    sent_up_to: list[int] = field(default_factory=lambda: [0] * SHARDS)
    elapsed: float = 0.0
    all_sent: bool = False
    offsets: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    shards: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen_idle: set[str] = field(default_factory=set)
    global_watermarks: list[tuple[str, int]] = field(default_factory=list)

    def add_producer_report(self, report: dict[str, Any]) -> None:
        """Add a report of the producer."""
        self.sent, self.sent_up_to = report["sent"], report["sentUpToByQuarter"]
        self.elapsed, self.all_sent = report["elapsed"], report["done"]

    def add_query_progress(self, progress: dict[str, Any]) -> None:
        """Add a progress report of a Spark query. The offset in the report has the state of every shard."""
        name, source = progress["name"], progress["sources"][0]
        offset = source["endOffset"]
        if not isinstance(offset, dict):
            return
        self.offsets[name] = offset
        rows = offset["records"] + source["numInputRows"]
        # `max`, because a query that waits reports its last offset again, with 0 rows.
        self.rows[name] = max(rows, self.rows.get(name, 0))
        self.seen_idle |= {key for key, entry in offset["shards"].items() if entry.get("idle")}
        if name == "flights":
            self._update_shards(offset["shards"])
        if offset.get("globalWatermark") is not None:
            self.global_watermarks.append((name, offset["globalWatermark"]))

    def _update_shards(self, entries: dict[str, dict[str, Any]]) -> None:
        """Store the new state of each shard. A shard that the offset no longer contains was read to its end."""
        for key, entry in self.shards.items():
            if key not in entries:
                self.shards[key] = {**entry, "state": {**entry["state"], "ended": True}}
        for key, entry in entries.items():
            self.shards[key] = {"idle": False, **entry}

    @property
    def is_complete(self) -> bool:
        """Whether both queries have written all records that were sent."""
        return self.all_sent and len(self.rows) == 2 and all(count >= self.total for count in self.rows.values())

    @property
    def held_ms(self) -> int:
        """Time for which alignment held shards back, summed over the shards (ms)."""
        return sum(entry.get("held", {}).get("ms", 0) for entry in self.shards.values())


def quarter_of(entry: dict[str, Any]) -> int:
    """Return which of the four original shards (0 to 3) this shard is, or descends from."""
    return int(entry["range"].split("-")[0], 16) * SHARDS >> HASH_BITS


class ProgressDisplay:
    """Shows the progress live on a terminal. If the output is not a terminal, prints a line every ten seconds."""

    def __init__(self, progress: DemoProgress, title: str) -> None:
        self._progress = progress
        self._title = title
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=False)
        self._last_line = float("-inf")
        self._before: dict[str, tuple[float, int]] = {}
        self._rates: dict[str, float] = {}

    def __enter__(self) -> ProgressDisplay:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, elapsed: float) -> None:
        """Show the progress after `elapsed` seconds."""
        self._measure(elapsed)
        if self._console.is_terminal:
            self._live.update(Group(self._table(), self._summary(elapsed)))
        elif elapsed - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = elapsed
            self._console.print(self._summary(elapsed), soft_wrap=True)

    def print_line(self, line: str) -> None:
        """Print a line above the table."""
        self._console.print(line, highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        table = Table(title=self._title, expand=True)
        for column, justify in (("shard", "left"), ("role", "left"), ("behind", "left"), ("days", "right")):
            table.add_column(column, justify=justify)  # type: ignore[arg-type]
        for column in ("records", "records/s", "watermark", "state"):
            table.add_column(column, justify="right")
        for key, entry in sorted(self._progress.shards.items()):
            table.add_row(*self._row(key, entry))
        return table

    def _row(self, key: str, entry: dict[str, Any]) -> list[Any]:
        role = "child of the split" if entry.get("parents") else ROLES[quarter_of(entry)]
        lag = lag_days(self._progress, entry)
        bar = ProgressBar(total=LAG_BAR_DAYS, completed=min(lag, LAG_BAR_DAYS), width=24)
        rate = f"{self._rates.get(key, 0.0):,.0f}"
        watermark = day(entry["state"].get("watermark"))
        return [key[-4:], role, bar, f"{lag:.0f}", f"{entry.get('records', 0):,}", rate, watermark, state_of(entry)]

    def _summary(self, elapsed: float) -> Text:
        progress = self._progress
        known = [value for name, value in progress.global_watermarks if name == "flights"]
        rows = ", ".join(f"{name} {count:,}" for name, count in sorted(progress.rows.items()))
        return Text(
            f"{elapsed:5.0f} s   global watermark {day(known[-1] if known else None)}   sent {sum(progress.sent):,} of "
            f"{progress.total:,}   written by Spark: {rows or 'nothing yet'}   held back {progress.held_ms / 1000:,.0f} s"
        )

    def _measure(self, elapsed: float) -> None:
        """Compute the records per second of each shard between the last two reports."""
        for key, entry in self._progress.shards.items():
            then, before = self._before.get(key, (elapsed, 0))
            now = entry.get("records", 0)
            if key not in self._before or (now != before and elapsed > then):
                self._rates[key] = (now - before) / (elapsed - then) if elapsed > then else 0.0
                self._before[key] = (elapsed, now)
            elif elapsed - then > 15:
                self._rates[key] = 0.0


def lag_days(progress: DemoProgress, entry: dict[str, Any]) -> float:
    """Return how many days of event time a shard's watermark is behind the last record sent to it."""
    watermark = entry["state"].get("watermark")
    if watermark is None or entry["state"].get("ended") or entry["idle"]:
        return 0.0
    behind: int = progress.sent_up_to[quarter_of(entry)] - watermark
    return max(0.0, behind / DAY_MS)


def state_of(entry: dict[str, Any]) -> Text:
    """Return the state of a shard as coloured text: ended, idle, held back or reading."""
    if entry["state"].get("ended"):
        return Text("ended", style="dim")
    if entry["idle"]:
        return Text("idle", style="cyan")
    return (
        Text("held back", style="yellow")
        if entry.get("seen", {}).get("nextWatermark") is not None
        else Text("reading", style="green")
    )


def day(millis: int | None) -> str:
    """Return an event time (epoch ms) as a date in text form."""
    return "-" if millis is None else datetime.fromtimestamp(millis / 1000, tz=UTC).strftime("%b %d %H:%M")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check: the name of the check, what was found, and whether the check passed."""

    name: str
    found: str
    passed: bool


@dataclass(frozen=True, slots=True)
class OutputRows:
    """The columns of every output row: batch number, flight id, carrier, shard id, sequence number, event time (epoch ms)."""

    batch: list[int]
    ids: list[int]
    carriers: list[str]
    shards: list[str]
    sequences: list[str]
    times: list[int]

    @classmethod
    def read(cls, folder: Path) -> OutputRows:
        """Return the rows that the job has written as Parquet files."""
        import pyarrow as pa

        rows = cls([], [], [], [], [], [])
        for batch, table in rows_by_batch(folder):
            rows.batch.extend([batch] * table.num_rows)
            rows.ids.extend(table.column("id").to_pylist())
            rows.carriers.extend(table.column("carrier").to_pylist())
            rows.shards.extend(table.column("shardId").to_pylist())
            rows.sequences.extend(table.column("sequenceNumber").to_pylist())
            millis = table.column("eventTime").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
            rows.times.extend(millis.to_pylist())
        return rows


def check_results(progress: DemoProgress, folder: Path, allowed_spread_ms: int) -> list[CheckResult]:
    """Run every check, and return the results."""
    rows = OutputRows.read(folder / "flights")
    return [
        *_nothing_lost_or_repeated(rows, progress.total),
        *_right_numbers(rows, folder),
        _spread(rows, allowed_spread_ms),
        CheckResult(
            "time held back by alignment", f"{progress.held_ms / 1000:,.1f} s over all shards", progress.held_ms > 0
        ),
        _silent_shard(progress),
        _children_after_parents(rows, progress),
        _watermark_never_fell(progress),
    ]


def _nothing_lost_or_repeated(rows: OutputRows, total: int) -> list[CheckResult]:
    repeated = len(rows.ids) - len(set(rows.ids))
    places = len(rows.ids) - len(set(zip(rows.shards, rows.sequences, strict=True)))
    missing = len(set(range(total)) - set(rows.ids))
    return [
        CheckResult("rows read back from Parquet", f"{len(rows.ids):,} of {total:,}", len(rows.ids) == total),
        CheckResult("duplicates", f"{repeated:,} flights, {places:,} sequence numbers", repeated == places == 0),
        CheckResult("missing", f"{missing:,}", missing == 0),
    ]


def _right_numbers(rows: OutputRows, folder: Path) -> list[CheckResult]:
    expected, counted = flight_counts(), dict(Counter(rows.carriers))
    summed = departures(folder / "departures")
    largest = ", ".join(f"{name} {count:,}" for name, count in Counter(counted).most_common(5))
    return [
        CheckResult("flights per carrier", f"{largest}, ...", counted == expected),
        CheckResult("windowed aggregate", f"{sum(summed.values()):,} departures in weeks", summed == expected),
    ]


def _spread(rows: OutputRows, allowed_ms: int) -> CheckResult:
    """Check that the event times in one micro-batch differ by `allowed_ms` at most."""
    lowest: dict[int, int] = {}
    highest: dict[int, int] = {}
    for batch, moment in zip(rows.batch, rows.times, strict=True):
        lowest[batch] = min(lowest.get(batch, moment), moment)
        highest[batch] = max(highest.get(batch, moment), moment)
    widest = max((highest[batch] - lowest[batch] for batch in lowest), default=0)
    found = f"{widest / DAY_MS:.2f} days in {len(lowest)} batches, allowed {allowed_ms / DAY_MS:.2f}"
    return CheckResult("event-time spread within a batch", found, 0 < widest <= allowed_ms)


def _silent_shard(progress: DemoProgress) -> CheckResult:
    silent = {key for key, entry in progress.shards.items() if quarter_of(entry) == SILENT}
    return CheckResult("the silent shard was seen idle", ", ".join(sorted(silent)), bool(silent & progress.seen_idle))


def _children_after_parents(rows: OutputRows, progress: DemoProgress) -> CheckResult:
    """Check that every row of a child is in a later batch than the last row of its parent."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for batch, shard in zip(rows.batch, rows.shards, strict=True):
        first.setdefault(shard, batch)
        last[shard] = batch
    families = [(entry["id"], parent) for entry in progress.shards.values() for parent in entry.get("parents", ())]
    in_order = [first.get(child, -1) > last.get(parent, -1) for child, parent in families]
    return CheckResult(
        "children read after their parent", f"{len(families)} children", bool(families) and all(in_order)
    )


def _watermark_never_fell(progress: DemoProgress) -> CheckResult:
    falls = 0
    latest: dict[str, Any] = {}
    for name, value in progress.global_watermarks:
        falls += value < latest.get(name, value)
        latest[name] = value
    return CheckResult(
        "the global watermark never fell", f"{len(progress.global_watermarks)} reports, {falls} falls", not falls
    )


def rows_by_batch(folder: Path) -> Iterator[tuple[int, Any]]:
    """Yield batch number and rows (an Arrow table) of every file that the sink's log names, and of no other file."""
    from pyarrow import parquet

    for batch, paths in sorted(files_by_batch(folder / "_spark_metadata").items()):
        for path in paths:
            yield batch, parquet.read_table(path, partitioning=None)


def files_by_batch(log: Path) -> dict[int, list[str]]:
    """Return the files of each batch in the log of Spark's file sink.

    A compacted entry repeats the files of all batches before it. These files are not counted again.
    """
    known: set[str] = set()
    batches: dict[int, list[str]] = {}
    for entry in sorted(log.iterdir() if log.is_dir() else (), key=_batch_of):
        if entry.name.startswith("."):
            continue
        paths = [path for path in _paths(entry) if path not in known]
        known.update(paths)
        batches.setdefault(_batch_of(entry), []).extend(paths)
    return batches


def departures(folder: Path) -> dict[str, int]:
    """Return the number of departures of each carrier, summed over the windows of the newest complete aggregate."""
    from pyarrow import parquet

    whole = [path for path in folder.glob("batch=*") if (path / "_SUCCESS").exists()]
    newest = max(whole, key=lambda path: int(path.name.removeprefix("batch=")))
    table = parquet.read_table(str(newest), partitioning=None)
    counts = table.group_by("carrier").aggregate([("departures", "sum")]).to_pylist()
    return {row["carrier"]: row["departures_sum"] for row in counts}


def _paths(entry: Path) -> list[str]:
    documents = [json.loads(line) for line in entry.read_text().splitlines()[1:]]
    return [unquote(urlparse(document["path"]).path) for document in documents if document.get("action") == "add"]


def _batch_of(entry: Path) -> int:
    stem = entry.name.lstrip(".").split(".")[0]
    return int(stem) if stem.isdigit() else -1


class ChildProcess:
    """One process in a process group of its own. Owns the pipes of the process.

    `read_messages` returns the JSON lines of stdout, which are also written to a file next to the log. stderr is written to the log.
    """

    def __init__(self, module: str, arguments: list[str], log: Path) -> None:
        self._log = log
        self._lines: queue.Queue[str] = queue.Queue()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                env={**QUICK_JAVA, **os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"},
            )
        threading.Thread(target=self._read_stdout, daemon=True).start()

    @property
    def has_failed(self) -> bool:
        """Whether the process ended with an error."""
        return self.process.poll() not in (None, 0)

    @property
    def has_ended(self) -> bool:
        """Whether the process ended."""
        return self.process.poll() is not None

    def log_tail(self) -> str:
        """Return the end of the process's stderr, without warnings."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return "\n".join(line for line in lines if " WARN " not in line)[-2_000:]

    def read_messages(self) -> Iterator[dict[str, Any]]:
        """Yield the JSON documents written to stdout since the last call."""
        while not self._lines.empty():
            with contextlib.suppress(ValueError):
                document = json.loads(self._lines.get_nowait())
                if isinstance(document, dict):
                    yield document

    def write_line(self, line: str) -> None:
        """Write a line to the process's stdin."""
        with contextlib.suppress(BrokenPipeError, ValueError):
            if self.process.stdin is not None:
                self.process.stdin.write(line + "\n")
                self.process.stdin.flush()

    def kill(self) -> None:
        """Kill the process, and all processes that it started, with SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_or_kill(self, seconds: float) -> None:
        """Wait until the process ends by itself. If it has not ended after `seconds`, kill it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.kill()

    def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        with self._log.with_suffix(".jsonl").open("a") as transcript:
            for line in self.process.stdout:
                self._lines.put(line)
                transcript.write(line)
