"""A running fetcher on virtual time whose alarms are recorded (A2), with scripted tips and stored states."""

import asyncio

from recordpublisher.fetcher.alarms import AlarmKind
from recordpublisher.publishers.polling.publisher import TipDistance
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, make_fetcher

INTERVAL = {"flink.alarm.interval": 10_000}
ALIGNED = {**INTERVAL, "flink.watermark.lookahead.millis": 0}


class Tips:
    """The `tip` dependency: the given shards have unread records after every position."""

    def __init__(self, *unread):
        self.unread = set(unread)
        self.requested = []
        self.failure = None

    async def __call__(self, shard, position):
        self.requested.append(shard.shard_id)
        if self.failure:
            raise self.failure
        return TipDistance(shard.shard_id in self.unread)


def alarms_of(source, seconds=40, properties=INTERVAL, sink=None, during=None, **parts):
    """Run a job for `seconds` of virtual time; returns each alarm once, without its repetitions."""

    async def job():
        raised = {}
        fetcher = make_fetcher(
            source,
            sink or RecordingSink(),
            dict(properties),
            on_alarm=lambda alarm: raised.setdefault((alarm.kind, alarm.subject, alarm.is_over), alarm),
            **parts,
        )
        await fetcher.open()
        running = asyncio.create_task(fetcher.run())
        await during(fetcher) if during else None
        await asyncio.sleep(seconds)
        fetcher.stop()
        await running
        await fetcher.close()
        return list(raised.values())

    return run_virtual(job())


def unread(alarms):
    return [(alarm.subject, alarm.reason) for alarm in alarms if alarm.kind is AlarmKind.UNREAD and not alarm.is_over]
