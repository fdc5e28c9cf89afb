"""E10 over PostgreSQL: a subtask that is suspended inside a transaction holds the lock of its row."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from recordpublisher import FencedError, Properties, StartingPosition
from recordpublisher.fetcher.takeover.to_group import take_over_subtasks
from recordpublisher.plugins.stores.fenced_state_stores import SqlStateStore
from recordpublisher.plugins.stores.sql import engines
from recordpublisher.plugins.stores.sql.sql_store import TABLE, SqlStore

JOB = "a-job-that-goes-over"


@pytest.fixture
def job(postgresql, monkeypatch):
    monkeypatch.setattr(engines, "_IDLE_TIMEOUT_MS", 1_000)  # 30 s otherwise
    return Properties({"flink.state.uri": postgresql, "flink.job.name": JOB})


@pytest.fixture
async def subtask(job):
    states = SqlStateStore(job)
    yield states
    await states.close()


@pytest.fixture
async def store(job):
    store = SqlStore(job["flink.state.uri"], "uri", JOB, job)
    yield store
    await store.close()


async def test_a_group_takes_over_from_a_subtask_that_is_suspended_in_a_transaction(job, subtask, store):
    generation = await subtask.open_generation(0)
    session = engines.engine_of(job["flink.state.uri"], "uri").connect()
    session.execute(text(f"UPDATE {TABLE} SET version = 'new' WHERE job = '{JOB}'"))

    await take_over_subtasks(store, StartingPosition.latest())

    with pytest.raises(FencedError, match="a group of workers has taken over"):
        await subtask.store(0, generation, {})
    with pytest.raises(DBAPIError, match="idle-in-transaction timeout"):
        session.commit()
    session.invalidate()
