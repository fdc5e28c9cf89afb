"""A1: the retention of a stream is requested in the background, and the time to loss is a metric."""

import asyncio

import pytest

from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher

DAY_MS = 86_400_000


def metrics_after(seconds, retention_ms, **parts):
    async def job():
        source = ScriptedSource()
        source.add("a", 1, 2)
        fetcher = make_fetcher(source, RecordingSink(), retention_ms=retention_ms, **parts)
        await fetcher.open()
        running = asyncio.create_task(fetcher.run())
        await asyncio.sleep(seconds)
        shown = fetcher.metrics()["shards"]["s/a"]["timeToRetentionLossMs"]
        fetcher.stop()
        await running
        await fetcher.close()
        return shown

    return run_virtual(job())


def test_a_shard_at_its_tip_has_the_whole_retention_left():
    async def day(stream):
        return DAY_MS

    assert metrics_after(100, day) > DAY_MS - 1_000


@pytest.mark.slow
def test_it_is_requested_again_since_it_may_be_changed():
    answers = []

    async def growing(stream):
        answers.append(stream)
        return DAY_MS * len(answers)

    assert metrics_after(400, growing) > 2 * DAY_MS - 1_000
    assert answers == ["s", "s"]


def test_not_knowing_it_ends_nothing():
    async def refused(stream):
        raise OSError("no")

    assert metrics_after(10, refused) is None
