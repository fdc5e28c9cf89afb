"""format("killable"): the Kinesis source and sink, which stand still where a test wants to kill them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recordpublisher.plugins.sinks.spark.source import KinesisPartition, KinesisSource, KinesisStreamReader
from recordpublisher.plugins.sinks.spark.writing.options import WriteOptions
from recordpublisher.plugins.sinks.spark.writing.writers import KinesisStreamWriter, Written

FOLDER = "killable.folder"
"""Option: where the test says which place is armed, and the job which was reached."""
LONGEST_STAND = 30.0


class KillableSource(KinesisSource):
    """The source itself, with another name, reader and writer."""

    @classmethod
    def name(cls) -> str:
        return "killable"

    def streamReader(self, schema: Any) -> KillableReader:  # noqa: N802
        return KillableReader(self.reading_options())

    def streamWriter(self, schema: Any, overwrite: bool) -> KillableWriter:  # noqa: N802
        return KillableWriter(WriteOptions.parse(self.options), schema)


class KillableReader(KinesisStreamReader):
    """Reads as ever, and stands still between claim and first row, and between the last row and the end of the task."""

    def read(self, partition: KinesisPartition) -> Iterator[Any]:
        folder = Path(str(self._options.properties[FOLDER]))
        rows = super().read(partition)  # when this returns the batch is claimed
        stand(folder, "claimed")
        yield from rows
        stand(folder, "read")


class KillableWriter(KinesisStreamWriter):
    """Writes as ever, and stands still when the rows of a task are acknowledged and Spark does not know it yet."""

    def write(self, iterator: Iterator[Any]) -> Written:
        written = super().write(iterator)
        stand(Path(str(self._options.properties[FOLDER])), "written")
        return written


def stand(folder: Path, place: str) -> None:
    """Say that the place was reached, and by whom, and stay for as long as it is armed."""
    armed = folder / f"armed-{place}"
    if not armed.exists():
        return
    (folder / f"reached-{place}-{os.getpid()}").touch()
    until = time.monotonic() + LONGEST_STAND
    while armed.exists() and time.monotonic() < until:
        time.sleep(0.05)
