"""Archives of one shard that the file sinks write: 24 records, of which each third is an aggregate of two."""

import recordpublisher as rp
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

from fakes.commits.committing_sink import started

ARRIVAL = 1_790_000_000.0
PAYLOADS = [b"%d" % number for number in range(24)]
SHARD = Shard("orders", "shardId-0")
HORIZON = StartingPosition.trim_horizon()


def records(start, stop):
    found = []
    for index in range(start, stop):
        number, part = (index // 2 * 2, index % 2) if index % 6 < 2 else (index, -1)
        found.append(UserRecord(PAYLOADS[index], str(100 + number), ARRIVAL + 1800 * index, "key", None, part))
    return found


async def write_archive(folder, kind, cuts, *, is_ended=True, children=(), sink=None, tip_ms=None, stop=24, **more):
    """Write files that end at these indexes of the payloads, and at `stop`.

    `tip_ms`: when the archiving job last saw no record behind the last one.
    """
    name = kind.__name__.removesuffix("Sink").lower()
    sink = sink or kind(rp.Properties({f"flink.sink.{name}.path": str(folder), "flink.sink.archive": "true", **more}))
    await write_ranges(sink, cuts, is_ended=is_ended, children=children, tip_ms=tip_ms, stop=stop)


async def write_table_archive(table, cuts, *, is_ended=True, children=(), tip_ms=None, start=0, stop=24, **more):
    """Write an archive of `Delta` or `Iceberg`, as `write_archive` does."""
    sink = table.sink(**{"flink.sink.archive": "true", **more})
    store = table.entries()
    given = {"is_ended": is_ended, "children": children, "tip_ms": tip_ms, "start": start, "stop": stop}
    await write_ranges(sink, cuts, store, **given)


async def write_ranges(sink, cuts, store=None, *, is_ended=True, children=(), tip_ms=None, start=0, stop=24):
    job = await started(sink, store=store)
    sink.shard_listed(SHARD, 1_700_000_000_000)
    began = StartingPosition.after(SequenceNumber(records(0, start)[-1].sequence_number)) if start else HORIZON
    sink.shard_started(SHARD, began, follows_parents=not start)
    for begin, end in zip((start, *cuts), (*cuts, stop), strict=True):
        rows = records(begin, end)
        last = rows[-1]
        position = SequenceNumber(last.sequence_number, 0 if last.sub_sequence_number == 0 else -1)
        await sink.write(RecordBatch(SHARD, rows, read_position=position, raw_count=len(rows), raw_bytes=len(rows)))
        state = {"start": "TRIM_HORIZON", "position": position.sequence} | ({} if tip_ms is None else {"tipMs": tip_ms})
        await job.checkpoint({"version": 2, "generation": 1, "shards": {SHARD.key: state}})
    if is_ended:
        sink.shard_ended(SHARD, children)
        await job.checkpoint({"version": 2, "generation": 1, "shards": {}})
    await sink.close()
    await job.alone.close()  # the store of the entries is the job's
