"""Repeats a query with Trigger.AvailableNow until it has read all records. On Spark 4.0 and 4.1 each such run is only one batch."""

import ast
from collections.abc import Callable, Mapping
from typing import Any

from recordpublisher.publishers.clock import SystemClock

from .source.offset import BatchOffset, ShardOffset
from .versions import HAS_START


def run_to_tips(start: Callable[[], Any]) -> int:
    """Run a query until it has read each shard to its tip, or to a record that arrived since this call. Return the number of runs.

    On Spark 4.2 and newer there is one run. While a service is away, runs have no rows, and are repeated.

    - `start`: starts one run, always with the same checkpoint: `lambda: writer.trigger(availableNow=True).start()`.

    Raises: the error of a run.
    """
    began_ms, runs = SystemClock().now_ms(), 0
    while True:
        query = start()
        query.awaitTermination()
        runs += 1
        if HAS_START or has_read(query.lastProgress, began_ms):
            return runs


def has_read(progress: Mapping[str, Any] | None, began_ms: int) -> bool:
    """Return whether every shard had been read up to `began_ms` before the last batch.

    The offset of that batch does not say what it has read.
    """
    texts = [source["endOffset"] or "" for source in (progress or {"sources": ()})["sources"]]
    # PySpark 4.0 and 4.1 convert the offset to the text of a dict.
    offsets = [BatchOffset.from_json(ast.literal_eval(text)) for text in texts if "'plan'" in text]
    shards = [entry for offset in offsets for entry in offset.shards.values()]
    return bool(shards) and all(_is_read(entry, began_ms) for entry in shards)


def _is_read(entry: ShardOffset, began_ms: int) -> bool:
    return entry.state.ended or max(entry.state.tip_ms or 0, entry.state.arrival_ms or 0) >= began_ms
