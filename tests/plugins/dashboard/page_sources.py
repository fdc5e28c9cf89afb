"""Jobs that the page of the dashboard shows in tests: one that lags, one that was resharded, one whose figures move."""

import math

import msgspec

from recordpublisher.plugins.lag.job_snapshot import JobSnapshot, ShardSnapshot, WorkerSnapshot

NOW_MS = 1_795_401_005_448


HOUR_MS = 3_600_000


ALIGNMENT = (
    "6 of 24 shards are held back: they wait for orders/shardId-000000000007 of worker 1, "
    "which is 312.0 s behind its newest record."
)


def shard(number, **values):
    values = {
        "process": number % 3,
        "stage": "READING",
        "lag_ms": number * 37 % 400,
        "records_per_second": 400.0 + number * 7 % 90,
        "bytes_per_second": 98_000.0 + number * 711 % 9_000,
        "watermark": NOW_MS - 312_000 + (0 if number == 7 else 60_000),
        "is_idle": False,
        "is_held": False,
        "loss_ms": 24 * HOUR_MS - number * 37 % 400,
        "counts": {"skipped": 0, "dead letters": 0},
        "has_alarm": False,
        **values,
    }
    return ShardSnapshot(stream="orders", shard=f"shardId-{number:012}", **values)


def job(count, **changes):
    """A job whose shard 7 lags; others are held, idle or not read yet."""
    shards = [shard(number) for number in range(count)]
    if count > 20:
        shards[7] = shard(7, lag_ms=312_000, records_per_second=31.5, loss_ms=3 * HOUR_MS, has_alarm=True)
        shards[11] = shard(11, records_per_second=0.0, bytes_per_second=0.0, is_idle=True, watermark=None)
        shards[15:21] = [shard(number, is_held=True, watermark=NOW_MS - 192_000) for number in range(15, 21)]
    workers = [WorkerSnapshot(number, True, [], 2_400 + 1_700 * number) for number in range(3)]
    made = JobSnapshot(
        time_ms=NOW_MS, shards=shards, workers=workers, global_watermark=NOW_MS - 312_000, alignment=ALIGNMENT
    )
    return msgspec.structs.replace(made, **changes)


class Source:
    """Answers with what it is given, each time a second later."""

    def __init__(self, snapshot):
        self.given = snapshot
        self.error = None

    async def snapshot(self):
        if self.error is not None:
            raise self.error
        self.given = msgspec.structs.replace(self.given, time_ms=self.given.time_ms + 1_000)
        return self.given


def resharded_job():
    """A job of ten shards, of which one was split and two were merged lately."""
    ended = {"stage": "ENDED", "lag_ms": 0, "records_per_second": 0.0, "bytes_per_second": 0.0}
    ended |= {"watermark": NOW_MS - 900_000, "loss_ms": None}
    parents = {10: [2], 11: [2], 12: [4, 5], 13: [10], 14: [10]}
    names = [f"shardId-{number:012}" for number in range(15)]
    shards = {
        number: shard(
            number,
            parents=[names[each] for each in parents.get(number, [])],
            **(ended if number in (2, 4, 5, 10) else {}),
        )
        for number in (0, 1, 2, 3, 4, 5, 7, 10, 11, 12, 13, 14)
    }
    lagging = {"lag_ms": 312_000, "records_per_second": 31.5, "loss_ms": 3 * HOUR_MS, "has_alarm": True}
    shards[7] = msgspec.structs.replace(shards[7], **lagging)
    shards[1] = msgspec.structs.replace(shards[1], records_per_second=0.0, bytes_per_second=0.0, is_idle=True)
    for number in (12, 13, 14):
        shards[number] = msgspec.structs.replace(shards[number], is_held=True, watermark=NOW_MS - 192_000)
    return job(0, job="orders-to-lake", shards=[*shards.values()], alignment=ALIGNMENT.replace("6 of 24", "3 of 8"))


class BusySource(Source):
    """Each time ten seconds later: its shards read more and less, while shard 7 catches up."""

    async def snapshot(self):
        self.given = msgspec.structs.replace(self.given, time_ms=self.given.time_ms + 9_000)
        found = await super().snapshot()
        elapsed_ms = found.time_ms - NOW_MS
        share = 1 + 0.2 * math.sin(elapsed_ms / 60_000) + 0.05 * math.sin(elapsed_ms / 5_000)
        lag_ms = round(712_000 - 0.8 * elapsed_ms)
        risen_ms = elapsed_ms + 312_000 - lag_ms
        shards = [
            msgspec.structs.replace(
                each,
                records_per_second=each.records_per_second * share,
                bytes_per_second=each.bytes_per_second * share,
                lag_ms=lag_ms if each.has_alarm else each.lag_ms,
                watermark=each.watermark + risen_ms,
            )
            for each in found.shards
        ]
        return msgspec.structs.replace(
            found,
            shards=shards,
            global_watermark=found.global_watermark + risen_ms,
            alignment=found.alignment.replace("312.0", f"{lag_ms / 1_000}"),
        )
