"""The verdict: what came out, read back from Parquet, against what the data set says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from .flights import flights_by_carrier
from .progress import Story, quarter_of
from .schedule import DAY_MS, SILENT


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what it is, what was found, and whether that is right."""

    what: str
    found: str
    is_right: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """Columns of every row that came out: batch number, flight id, carrier, shard id, sequence number, event time (epoch ms)."""

    batch: list[int]
    ids: list[int]
    carriers: list[str]
    shards: list[str]
    sequences: list[str]
    times: list[int]

    @classmethod
    def read(cls, folder: Path) -> Evidence:
        """Read the Parquet rows back."""
        import pyarrow as pa

        evidence = cls([], [], [], [], [], [])
        for batch, table in rows_by_batch(folder):
            evidence.batch.extend([batch] * table.num_rows)
            evidence.ids.extend(table.column("id").to_pylist())
            evidence.carriers.extend(table.column("carrier").to_pylist())
            evidence.shards.extend(table.column("shardId").to_pylist())
            evidence.sequences.extend(table.column("sequenceNumber").to_pylist())
            millis = table.column("eventTime").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
            evidence.times.extend(millis.to_pylist())
        return evidence


def findings(story: Story, folder: Path, allowed_spread_ms: int) -> list[Finding]:
    """Everything that the demo promises."""
    rows = Evidence.read(folder / "flights")
    return [
        *_nothing_lost_or_repeated(rows, story.total),
        *_right_numbers(rows, folder),
        _spread(rows, allowed_spread_ms),
        Finding("time held back by alignment", f"{story.held_ms / 1000:,.1f} s over all shards", story.held_ms > 0),
        _silent_shard(story),
        _children_after_parents(rows, story),
        _watermark_never_fell(story),
    ]


def _nothing_lost_or_repeated(rows: Evidence, total: int) -> list[Finding]:
    repeated = len(rows.ids) - len(set(rows.ids))
    places = len(rows.ids) - len(set(zip(rows.shards, rows.sequences, strict=True)))
    missing = len(set(range(total)) - set(rows.ids))
    return [
        Finding("rows read back from Parquet", f"{len(rows.ids):,} of {total:,}", len(rows.ids) == total),
        Finding("duplicates", f"{repeated:,} flights, {places:,} sequence numbers", repeated == places == 0),
        Finding("missing", f"{missing:,}", missing == 0),
    ]


def _right_numbers(rows: Evidence, folder: Path) -> list[Finding]:
    expected, counted = flights_by_carrier(), dict(Counter(rows.carriers))
    summed = departures(folder / "departures")
    largest = ", ".join(f"{name} {count:,}" for name, count in Counter(counted).most_common(5))
    return [
        Finding("flights per carrier", f"{largest}, ...", counted == expected),
        Finding("windowed aggregate", f"{sum(summed.values()):,} departures in weeks", summed == expected),
    ]


def _spread(rows: Evidence, allowed_ms: int) -> Finding:
    """The largest distance of two event times in one micro-batch."""
    lowest: dict[int, int] = {}
    highest: dict[int, int] = {}
    for batch, time in zip(rows.batch, rows.times, strict=True):
        lowest[batch] = min(lowest.get(batch, time), time)
        highest[batch] = max(highest.get(batch, time), time)
    widest = max((highest[batch] - lowest[batch] for batch in lowest), default=0)
    words = f"{widest / DAY_MS:.2f} days in {len(lowest)} batches, allowed {allowed_ms / DAY_MS:.2f}"
    return Finding("event-time spread within a batch", words, 0 < widest <= allowed_ms)


def _silent_shard(story: Story) -> Finding:
    silent = {key for key, entry in story.shards.items() if quarter_of(entry) == SILENT}
    return Finding("the silent shard was seen idle", ", ".join(sorted(silent)), bool(silent & story.seen_idle))


def _children_after_parents(rows: Evidence, story: Story) -> Finding:
    """No child's row came out in a batch before, or together with, its parent's last."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for batch, shard in zip(rows.batch, rows.shards, strict=True):
        first.setdefault(shard, batch)
        last[shard] = batch
    families = [(entry["id"], parent) for entry in story.shards.values() for parent in entry.get("parents", ())]
    in_order = [first.get(child, -1) > last.get(parent, -1) for child, parent in families]
    return Finding("children read after their parent", f"{len(families)} children", bool(families) and all(in_order))


def _watermark_never_fell(story: Story) -> Finding:
    falls = 0
    latest: dict[str, Any] = {}
    for name, value in story.global_watermarks:
        falls += value < latest.get(name, value)
        latest[name] = value
    return Finding(
        "the global watermark never fell", f"{len(story.global_watermarks)} reports, {falls} falls", not falls
    )


def rows_by_batch(folder: Path) -> Iterator[tuple[int, Any]]:
    """Batch number and rows (an Arrow table) of every file that the sink's log names, and of no other."""
    from pyarrow import parquet

    for batch, paths in sorted(files_by_batch(folder / "_spark_metadata").items()):
        for path in paths:
            yield batch, parquet.read_table(path, partitioning=None)


def files_by_batch(log: Path) -> dict[int, list[str]]:
    """The files of each batch; a compacted log entry repeats the files of all batches before it."""
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
    """Departures by carrier, summed over the windows of the newest whole aggregate."""
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
