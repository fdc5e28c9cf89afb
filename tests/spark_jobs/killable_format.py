"""format("killable"): the Kinesis source and sink, with pauses at which a test can kill them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recordpublisher.plugins.spark.data_source import KinesisSource
from recordpublisher.plugins.spark.row_columns import RowColumns
from recordpublisher.plugins.spark.source.claims import claim_store
from recordpublisher.plugins.spark.source.task_read import TaskRead, shard_reader
from recordpublisher.plugins.spark.stream_reader import KinesisPartition, QueryReader
from recordpublisher.plugins.spark.write_options import WriteOptions
from recordpublisher.plugins.spark.writer import KinesisStreamWriter, TaskCommitMessage
from recordpublisher.plugins.stores.spark_read_claims import BatchId, ReadClaimStore

FOLDER = "killable.folder"
"""Option: a folder in which the test arms places, and the job notes which it reached."""
LONGEST_PAUSE = 30.0


class KillableSource(KinesisSource):
    """The source itself, with another name, reader and writer."""

    @classmethod
    def name(cls) -> str:
        return "killable"

    def streamReader(self, schema: Any) -> KillableReader:  # noqa: N802
        return KillableReader(self, schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> KillableWriter:  # noqa: N802
        return KillableWriter(WriteOptions.parse(self.options), schema)


class KillableReader(QueryReader):
    """Reads as usual, and pauses before the read, before the claim, between claim and first row, and between the last row and the end."""

    def read(self, partition: KinesisPartition) -> Iterator[Any]:
        folder = Path(str(self._options.properties[FOLDER]))
        pause_while_armed(folder, "reading")
        plan, store = partition.plan, PausingClaims(claim_store(self._options), folder)
        read = shard_reader(self._options, plan.consumer_arns)
        columns = RowColumns.chosen(self._schema, self._options.properties)
        rows = TaskRead(plan, store, read, columns=columns).rows()  # type: ignore[arg-type]  # here it is claimed
        pause_while_armed(folder, "claimed")
        yield from rows
        pause_while_armed(folder, "read")


class PausingClaims:
    """The store of claims, which pauses before it stores one."""

    def __init__(self, store: ReadClaimStore, folder: Path) -> None:
        self._store = store
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_if_absent(self, batch: BatchId, name: str, claim: bytes) -> bytes:
        pause_while_armed(self._folder, "claiming")
        return self._store.put_if_absent(batch, name, claim)


class KillableWriter(KinesisStreamWriter):
    """Writes as usual, and pauses when the rows of a task are acknowledged but not yet reported to Spark."""

    def write(self, iterator: Iterator[Any]) -> TaskCommitMessage:
        written = super().write(iterator)
        pause_while_armed(Path(str(self._options.properties[FOLDER])), "written")
        return written


def pause_while_armed(folder: Path, place: str) -> None:
    """Record that this process has reached the pause, and wait as long as it is armed."""
    armed = folder / f"armed-{place}"
    if not armed.exists():
        return
    (folder / f"reached-{place}-{os.getpid()}").touch()
    until = time.monotonic() + LONGEST_PAUSE
    while armed.exists() and time.monotonic() < until:
        time.sleep(0.05)
