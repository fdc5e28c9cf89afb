"""Dead letters of processes that share the shards, in sinks that write only together with positions (GROUP)."""

import json
import sqlite3
from contextlib import closing

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread


@pytest.mark.parametrize("name", ["jsonl", "sql"])
async def test_processes_that_share_the_shards_write_dead_letters(tmp_path, name):
    uri = f"sqlite:///{tmp_path}/letters.db"
    settings = {"jsonl": {"jsonl.path": str(tmp_path / "letters")}, "sql": {"sql.uri": uri, "sql.table": "letters"}}
    with serve_in_thread(streams={"orders": 1}) as served:
        given = {
            **served.endpoint.properties(),
            **{f"flink.deadletter.{key}": value for key, value in settings[name].items()},
            "flink.deadletter.sink": name,
            "flink.deserializer": "json",
            "flink.deserializer.error": "DEAD_LETTER",
            "flink.job.name": "orders",
            "flink.job.workers": "GROUP",
            "flink.state.uri": f"{tmp_path}/group",
            "flink.stream.initpos": "TRIM_HORIZON",
        }
        for _ in range(2):
            served.stream("orders").put(b"{", b"no json", {"n": 1}, {"n": 2})
            async with rp.DataFetcher("orders", given, sink=rp.MemorySink()) as fetcher:
                await fetcher.run_bounded(max_time=60, max_records=2)

    if name == "jsonl":
        assert sorted(payloads_in(tmp_path / "letters")) == ["no json", "no json", "{", "{"]
        assert not [file for file in (tmp_path / "letters" / ".recordpublisher").rglob("*") if file.is_file()]
    else:
        with closing(sqlite3.connect(tmp_path / "letters.db")) as database:
            assert database.execute("select count(*) from letters").fetchall() == [(4,)]
            assert database.execute("select count(*) from recordpublisher_commits").fetchall() == [(0,)]


def payloads_in(folder):
    files = sorted(folder.rglob("*.jsonl"))
    return [json.loads(line)["value"]["payload"] for file in files for line in file.read_text().splitlines()]
