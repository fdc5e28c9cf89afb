"""What SparkSink keeps: the rows of the batch that is being collected, and on disk which rows each delivered batch had."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.errors import StateError

from ..arrow_rows import ARROW_SCHEMA, arrow_columns

Range = tuple[int, str, int, str, int]
"""Rows of one shard in one batch: their number, sequence and sub-sequence number of the first and of the last."""


class RowBuffer:
    """Collected rows by shard. The first `skip[key]` rows of a shard are dropped: a batch before the restart had them."""

    def __init__(self, skip: Mapping[str, int]) -> None:
        self.skip = {key: count for key, count in skip.items() if count}
        self.bytes = 0
        self._rows: dict[str, list[pa.RecordBatch]] = {}

    def add(self, batch: Any) -> None:
        """Take a RecordBatch of one shard."""
        key = batch.shard.key
        dropped = min(self.skip.get(key, 0), len(batch))
        if dropped:
            self.skip[key] -= dropped
            self.skip = {each: count for each, count in self.skip.items() if count}
        if dropped < len(batch):
            self._rows.setdefault(key, []).append(arrow_columns(batch).slice(dropped))
            self.bytes += batch.raw_bytes

    def __len__(self) -> int:
        return sum(self.counts().values())

    def counts(self) -> dict[str, int]:
        """Rows by shard."""
        return {key: sum(rows.num_rows for rows in batches) for key, batches in self._rows.items()}

    def holds(self, wanted: Mapping[str, int]) -> bool:
        """Whether that many rows of each shard are there."""
        counts = self.counts()
        return all(counts.get(key, 0) >= count for key, count in wanted.items())

    def take(self, wanted: Mapping[str, int]) -> tuple[pa.Table, dict[str, Range]]:
        """The first so many rows of each shard, shard by shard, so that the same rows always come in the same order."""
        taken = {}
        for key, count in sorted(wanted.items()):
            rows = pa.Table.from_batches(self._rows.pop(key), schema=ARROW_SCHEMA)
            taken[key] = rows.slice(0, count)
            if count < rows.num_rows:
                self._rows[key] = rows.slice(count).to_batches()
        self.bytes = 0 if not self._rows else self.bytes
        return pa.concat_tables(taken.values()), {key: _range(rows) for key, rows in taken.items()}


@dataclass(frozen=True, slots=True)
class DeliveryLog:
    """`state`: a snapshot of the fetcher; `delivered`: how many rows of each shard behind it the batches before `batch` had. `pending`:
    the rows of batch `batch`, once its delivery has begun."""

    state: State
    batch: int = 0
    delivered: Mapping[str, int] = field(default_factory=dict)
    pending: Mapping[str, Range] = field(default_factory=dict)

    def after_delivery(self) -> DeliveryLog:
        """With the pending batch delivered."""
        keys = self.delivered.keys() | self.pending.keys()
        counts = {key: self.delivered.get(key, 0) + self.pending.get(key, (0,))[0] for key in sorted(keys)}
        return DeliveryLog(self.state, self.batch + 1, counts)

    def keep(self, path: Path) -> None:
        """Replace the file as a whole: a reader sees the old log or the new one."""
        aside = path.with_suffix(".tmp")
        with aside.open("w") as file:
            json.dump(asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        _sync(path.parent)

    @classmethod
    def read(cls, path: Path) -> DeliveryLog | None:
        """What was kept, None when nothing was. Raises: StateError when it cannot be read."""
        try:
            kept = json.loads(path.read_text())
            return cls(kept["state"], kept["batch"], kept["delivered"], _ranges(kept["pending"].items()))
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"{path} is not the state of a SparkSink: {error}") from error


def _ranges(entries: Iterable[tuple[str, Any]]) -> dict[str, Range]:
    return {key: (entry[0], entry[1], entry[2], entry[3], entry[4]) for key, entry in entries}


def _range(rows: pa.Table) -> Range:
    sequences, subs = rows["sequenceNumber"], rows["subSequenceNumber"]
    return (rows.num_rows, sequences[0].as_py(), subs[0].as_py(), sequences[-1].as_py(), subs[-1].as_py())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
