"""format("empty"): a Python source without rows, which imports nothing but PySpark, and notes how much CPU its worker has taken."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

FOLDER = "cold.folder"
"""Option: the folder of the notes."""


class EmptySource(DataSource):
    """One task a batch."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return "n long"

    def streamReader(self, schema: Any) -> EmptyReader:  # noqa: N802
        return EmptyReader(self.options[FOLDER])


class EmptyReader(DataSourceStreamReader):
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._batch = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802
        self._batch += 1
        return {"batch": self._batch}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(end["batch"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        note(self._folder, partition.value, 0, time.process_time())
        return iter(())


def note(folder: str, batch: int, attempt: int, began: float) -> None:
    """Note the CPU seconds of this worker when a task began and at its end."""
    line = {"batch": batch, "attempt": attempt, "pid": os.getpid(), "began": began, "ended": time.process_time()}
    with (Path(folder) / "notes").open("a") as notes:
        notes.write(json.dumps(line) + "\n")
