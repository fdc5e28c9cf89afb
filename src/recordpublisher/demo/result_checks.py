"""Compares the output, read back from Parquet, with the data set."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from .display import DemoProgress, quarter_of
from .flights_data_set import flights_by_carrier
from .schedule import DAY_MS, SILENT


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check: its name, what was found, and whether it passed."""

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
        """Read the Parquet rows back."""
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
    expected, counted = flights_by_carrier(), dict(Counter(rows.carriers))
    summed = departures(folder / "departures")
    largest = ", ".join(f"{name} {count:,}" for name, count in Counter(counted).most_common(5))
    return [
        CheckResult("flights per carrier", f"{largest}, ...", counted == expected),
        CheckResult("windowed aggregate", f"{sum(summed.values()):,} departures in weeks", summed == expected),
    ]


def _spread(rows: OutputRows, allowed_ms: int) -> CheckResult:
    """Check the largest difference between two event times in one micro-batch."""
    lowest: dict[int, int] = {}
    highest: dict[int, int] = {}
    for batch, time in zip(rows.batch, rows.times, strict=True):
        lowest[batch] = min(lowest.get(batch, time), time)
        highest[batch] = max(highest.get(batch, time), time)
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
    """Return the files of each batch. A compacted log entry repeats the files of all batches before it, which are left out."""
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
    """Return the departures by carrier, summed over the windows of the newest complete aggregate."""
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
