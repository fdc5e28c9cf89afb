"""Reading back what the demo's job has written: the rows of each micro-batch, by the Parquet sink's own log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse


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
