"""SqlStore beside what every store does (test_conditional_stores.py): where there is no table."""

import sqlite3

import pytest

from recordpublisher.fetcher.conditional_store import VersionedValue
from recordpublisher.plugins.stores.sql_store import SqlStore
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties


@pytest.fixture
async def store(tmp_path):
    store = SqlStore(f"sqlite:///{tmp_path}/state.db", "flink.state.uri", Properties({"flink.job.name": "job"}))
    yield store
    await store.close()


def test_a_name_of_a_job_that_is_too_long_for_the_column_is_refused(tmp_path):
    """PostgreSQL refused each write, and the error was that of its driver."""
    with pytest.raises(ConfigurationError, match=r"flink.job.name.*at most 200 characters in a database"):
        SqlStore(f"sqlite:///{tmp_path}/state.db", "flink.state.uri", Properties({"flink.job.name": "j" * 201}))


async def read_everything(store):
    return await store.get("a"), await store.list(""), await store.list_versions(""), await store.list_names("")


async def test_reading_makes_no_database(store, tmp_path):
    assert await read_everything(store) == (None, {}, {}, [])
    assert list(tmp_path.iterdir()) == []


async def test_reading_makes_no_table(store, tmp_path):
    database = sqlite3.connect(tmp_path / "state.db")
    database.execute("CREATE TABLE orders (id)")
    database.commit()

    assert await read_everything(store) == (None, {}, {}, [])
    assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("orders",)]


async def test_what_another_process_has_written_meanwhile_is_read(store, tmp_path):
    await read_everything(store)
    other = SqlStore(f"sqlite:///{tmp_path}/state.db", "flink.state.uri", Properties({"flink.job.name": "job"}))
    version = await other.put_if_absent("a", b"1")
    await other.close()

    assert await store.get("a") == VersionedValue(b"1", version)
    assert await store.list_versions("") == {"a": version}
