"""Lets a job read archived records: records that a test makes, or a folder that was copied from production."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import Record, RecordBatch

from ..fetcher.sink import SinkContext
from ..publishers.shards import Shard
from .records import as_record, as_user_record


@contextmanager
def archive_of(
    source: str | os.PathLike[str] | Iterable[Any], *, shards: Sequence[Shard] = ()
) -> Iterator[dict[str, str]]:
    """Return a context manager. Its value is the properties with which a job reads an archive to its end, without a network.

    The job reads as fast as it handles the records, shard by shard, parents before children. Event times and watermarks are computed from
    the records. On virtual time (`run_virtual`), pauses, timeouts and retries of the job take no time.

    `source` is one of these:

    - A folder: the archive that `flink.sink.archive` wrote there. It may have only some of the files, but needs its folder
      `_recordpublisher`.
    - An iterable of records (made by `record`), payloads (bytes, text) or values, in the order of each shard. They are written into a
      temporary folder, which is deleted when the `with` block ends. Payloads and values get the sequence numbers 1, 2, 3 and so on. The
      `event_time` of a record is not kept, because the job computes it: by default it is `arrival`, else give the payload a field for it
      (`flink.watermark.timestamp.field`).

    `shards`: the shards with their parents, if the parents matter. Any other shard of a record has no parents.

    Raises: StateError if the records of a shard are not in the order of their numbers; TypeError if a value cannot be written as JSON.
    """
    if isinstance(source, str | os.PathLike):
        yield _properties(os.fspath(source))
        return
    records = [as_record(item, number) for number, item in enumerate(source, 1)]
    with tempfile.TemporaryDirectory(prefix="recordpublisher-archive-") as folder:
        # Done in a thread, because the caller may run in an event loop, or on virtual time.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(_write(folder, records, shards))).result()
        yield _properties(folder)


def _properties(folder: str) -> dict[str, str]:
    return {
        "flink.stream.recordpublisher": "ARCHIVE",
        "flink.archive.uri": folder,
        "flink.archive.live": "NONE",
        "flink.stream.initpos": "TRIM_HORIZON",
    }


async def _write(folder: str, records: Sequence[Record[Any]], shards: Sequence[Shard]) -> None:
    """Write the records as a job writes an archive: it lists each shard, reads it from its beginning to its end, and commits."""
    from recordpublisher import JsonlSink  # Imported here because few tests need an archive.

    by_shard: dict[str, list[Record[Any]]] = {shard.key: [] for shard in shards}
    known = {shard.key: shard for shard in shards}
    for each in records:
        shard = known.setdefault(f"{each.stream}/{each.shard_id}", Shard(each.stream, each.shard_id))
        by_shard.setdefault(shard.key, []).append(each)
    sink = JsonlSink({"flink.sink.jsonl.path": folder, "flink.sink.archive": "true"})
    await sink.open(SinkContext())
    for key, shard in known.items():
        sink.shard_listed(shard)
        sink.shard_started(shard, StartingPosition.trim_horizon(), follows_parents=True)
        if by_shard[key]:
            await sink.write(_batch(shard, by_shard[key]))
        children = [each for each in known.values() if each.stream == shard.stream and shard.shard_id in each.parents]
        sink.shard_ended(shard, children)
    await sink.flush()
    await sink.close()
    await sink.entries().close()


def _batch(shard: Shard, records: Sequence[Record[Any]]) -> RecordBatch:
    places = [(int(each.sequence_number), each.sub_sequence_number) for each in records]
    for before, after in pairwise(places):
        if before >= after:
            raise StateError(
                f"the records of {shard.key} are not in order: {after[0]} comes after {before[0]}. Give each record of a shard a higher "
                "sequence_number than the one before it"
            )
    end = SequenceNumber(records[-1].sequence_number, records[-1].sub_sequence_number)
    size = sum(len(each.data) for each in records)
    rows = [as_user_record(each) for each in records]
    return RecordBatch(shard, rows, read_position=end, raw_count=len(rows), raw_bytes=size)
