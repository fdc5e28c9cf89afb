"""Archives of one shard that the file sinks write: 24 records, of which each third is an aggregate of two."""

import recordpublisher as rp
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

from fakes.commits.committing_sink import started

ARRIVAL = 1_790_000_000.0
PAYLOADS = [b"%d" % number for number in range(24)]
SHARD = Shard("orders", "shardId-0")


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
    job = await started(sink)
    sink.shard_listed(SHARD, 1_700_000_000_000)
    sink.shard_started(SHARD, StartingPosition.trim_horizon(), follows_parents=True)
    for begin, end in zip((0, *cuts), (*cuts, stop), strict=True):
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
