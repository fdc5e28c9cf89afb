"""format("killable"): the Kinesis source that stands still where a test wants to kill it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recordpublisher.plugins.sinks.spark.source import KinesisPartition, KinesisSource, KinesisStreamReader

FOLDER = "killable.folder"
"""Option: where the test says which place is armed, and the job which was reached."""
LONGEST_STAND = 30.0


class KillableSource(KinesisSource):
    """The source itself, with another name and reader."""

    @classmethod
    def name(cls) -> str:
        return "killable"

    def streamReader(self, schema: Any) -> KillableReader:  # noqa: N802
        return KillableReader(self._checked)


class KillableReader(KinesisStreamReader):
    """Reads as ever, and stands still between claim and first row, and between the last row and the end of the task."""

    def read(self, partition: KinesisPartition) -> Iterator[Any]:
        folder = Path(str(self._options.properties[FOLDER]))
        rows = super().read(partition)  # when this returns the batch is claimed
        stand(folder, "claimed")
        yield from rows
        stand(folder, "read")


def stand(folder: Path, place: str) -> None:
    """Say that the place was reached, and by whom, and stay for as long as it is armed."""
    armed = folder / f"armed-{place}"
    if not armed.exists():
        return
    (folder / f"reached-{place}-{os.getpid()}").touch()
    until = time.monotonic() + LONGEST_STAND
    while armed.exists() and time.monotonic() < until:
        time.sleep(0.05)
