"""Rows and positions of a worker in a group: a worker that was forgotten commits nothing more, whatever arrives late (E1)."""

import sqlite3
from contextlib import closing

import pytest

import recordpublisher as rp
from recordpublisher.plugins.sinks.sql import SqlSink

from fakes.batches import batch

ELASTIC = rp.SinkContext(is_elastic=True)
STATE = {"version": 2, "generation": 1, "shards": {"orders/shardId-0": {"position": "2"}}}


@pytest.fixture
async def sinks(tmp_path):
    """Two processes' sinks of one job."""
    given = {"flink.job.name": "job", "flink.sink.sql.uri": f"sqlite:///{tmp_path}/job.db"}
    opened = [SqlSink(rp.Properties(given)) for _ in range(2)]
    for sink in opened:
        await sink.open(ELASTIC)
    yield opened
    for sink in opened:
        await sink.close()


def rows(tmp_path):
    with closing(sqlite3.connect(tmp_path / "job.db")) as database:
        return database.execute("select count(*) from records").fetchone()[0]


@pytest.mark.parametrize("commits", [0, 1])
async def test_a_try_of_the_join_that_is_carried_out_late_gives_a_forgotten_worker_no_row(sinks, tmp_path, commits):
    own, others = (sink.worker_positions() for sink in sinks)
    await own.join("first")
    for _ in range(commits):
        await own.commit(STATE, None)
    await others.seal("first")
    await others.forget("first")
    await others.join("first")  # what the service had not carried out before
    await sinks[0].write(batch(b"1"))

    with pytest.raises(rp.FencedError, match="worker first of job 'job' was forgotten"):
        await own.commit(STATE, None)
    assert rows(tmp_path) == 0


async def test_a_worker_that_joins_again_goes_on_with_its_row(sinks, tmp_path):
    own = sinks[0].worker_positions()
    await own.join("first")
    await own.commit(STATE, None)
    await own.join("first")
    await sinks[0].write(batch(b"1"))
    await own.commit(STATE, None)

    assert rows(tmp_path) == 1
    assert await sinks[1].worker_positions().read("first") == STATE
