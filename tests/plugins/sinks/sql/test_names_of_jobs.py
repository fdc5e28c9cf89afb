"""In a database each job has its own positions, by its name."""

import recordpublisher as rp

from fakes.memory_streams import PROPERTIES, install


async def test_jobs_of_two_names_in_one_database_have_their_own_positions(tmp_path, monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2"]})
    database = {
        "flink.sink": "sql",
        "flink.sink.sql.uri": f"sqlite:///{tmp_path}/rows.db",
        "flink.sink.sql.table": "orders",
    }
    counts = []

    for name in ("orders", "bills", "orders"):
        async with rp.DataFetcher(["orders"], {**PROPERTIES, **database, "flink.job.name": name}) as job:
            counts.append((await job.run_bounded(stop_at_tip=True)).records)

    assert counts == [2, 2, 0]
