"""One task of a query over a spool: it hands files over, the same for every attempt, action and restart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from recordpublisher.plugins.spark.python_worker import WorkerLoop
from recordpublisher.plugins.stores.ports import ObjectStore
from recordpublisher.publishers.errors import ConfigurationError, StateError

from .names import SPOOL
from .planner import SpooledFile
from .rows import in_batches, read_rows


def rows_of(files: Sequence[SpooledFile], store: ObjectStore, loop: WorkerLoop, location: str) -> Iterator[Any]:
    """The files' rows as Arrow batches. Raises: ConfigurationError when the driver's spool is not seen here, StateError."""
    return in_batches(_table(file, store, loop, location) for file in files)


def _table(file: SpooledFile, store: ObjectStore, loop: WorkerLoop, location: str) -> Any:
    content = loop.run(store.get(file.name))
    if content is not None:
        return read_rows(file.name, content, file.rows)
    if loop.run(store.get(SPOOL)) is None:
        raise ConfigurationError(
            "metadataLocation",
            location,
            "one place that the driver and every executor see",
            reason="a task cannot see the driver's spool",
        )
    raise StateError(f"the spool's {file.name} is gone: a batch of long ago? Raise minBatchesToRetain")
