"""format("measured"): the Kinesis source, whose reading tasks note how much CPU their worker has taken, and fail once while armed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recordpublisher.plugins.spark.batch_read import KinesisBatchReader
from recordpublisher.plugins.spark.data_source import KinesisSource

from spark_jobs.empty_format import FOLDER, note

ARMED = "armed-fail"


class MeasuredSource(KinesisSource):
    """The source itself, with another name and reader."""

    @classmethod
    def name(cls) -> str:
        return "measured"

    def reader(self, schema: Any) -> MeasuredReader:
        return MeasuredReader(super().reader(schema), self.options[FOLDER])


class MeasuredReader(KinesisBatchReader):
    def __init__(self, reader: KinesisBatchReader, folder: str) -> None:
        self.__dict__.update(reader.__dict__)
        self._folder = folder

    def read(self, partition: Any) -> Iterator[Any]:
        began = time.process_time()
        yield from super().read(partition)
        note(self._folder, began)
        armed = Path(self._folder) / ARMED
        if armed.exists():
            armed.unlink()
            raise RuntimeError("a task that fails")
