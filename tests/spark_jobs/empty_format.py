"""format("empty"): a Python source without rows, which imports nothing but PySpark, and notes how much CPU its worker has taken."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

FOLDER = "cold.folder"
"""Option: the folder of the notes."""


class EmptySource(DataSource):
    """One task a read."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return "n long"

    def reader(self, schema: Any) -> EmptyReader:
        return EmptyReader(self.options[FOLDER])


class EmptyReader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        note(self._folder, time.process_time())
        return iter(())


def note(folder: str, began: float) -> None:
    """Note the CPU seconds of this worker when a task began and at its end."""
    line = {"pid": os.getpid(), "began": began, "ended": time.process_time()}
    with (Path(folder) / "notes").open("a") as notes:
        notes.write(json.dumps(line) + "\n")
