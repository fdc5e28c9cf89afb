"""The state store of a group was lost, or restored from an older copy, and the rows of its sink have the newer positions."""

import asyncio
import json
import logging
import shutil
import sqlite3
from contextlib import closing

import pytest
from typer.testing import CliRunner

import recordpublisher as rp
from recordpublisher.cli.app import app
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.plugins.sinks.sql import SqlSink


@pytest.fixture(autouse=True)
def _logging():
    """Commands that run in the test's process configure the log."""
    ours, root = logging.getLogger("recordpublisher"), logging.getLogger()
    before = ours.level, root.level, list(root.handlers)
    yield
    ours.setLevel(before[0])
    root.setLevel(before[1])
    root.handlers[:] = before[2]


@pytest.fixture
def put(kinesis, stream):
    """Put a record into the first shard."""
    return lambda data: kinesis.put_record(StreamName=stream, Data=data, PartitionKey="k", ExplicitHashKey="0")


@pytest.fixture
def elastic(job, tmp_path):
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        database.execute("create table t (data text)")
    sink = {"flink.sink": "sql", "flink.sink.sql.uri": f"sqlite:///{tmp_path}/rows.db", "flink.sink.sql.table": "t"}
    group = {"flink.job.name": "shop", "flink.job.workers": "GROUP", "flink.lease.duration": "2000"}
    return rp.Properties({**job, **sink, **group, "flink.state.uri": f"{tmp_path}/state"})


def run_to_tip(job):
    async def run():
        async with rp.DataFetcher(job["flink.streams"], job) as fetcher:
            return (await fetcher.run_bounded(stop_at_tip=True)).records

    return asyncio.run(run())


async def clean(job, folder):
    """Delete what the workers of the restored lease table have stored with the rows, as later workers do."""
    sink = SqlSink(job)
    for worker in await GroupStore(rp.FolderStore(folder)).read_records():
        await GroupStore(sink.entries()).delete_parts(worker)
    await sink.close()


@pytest.mark.parametrize("is_lost", [False, True])
def test_the_positions_next_to_the_rows_are_shown_and_imported(elastic, put, tmp_path, is_lost):
    put(b"1")
    assert run_to_tip(elastic) == 1
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    for payload in (b"2", b"3"):
        put(payload)
        assert run_to_tip(elastic) == 1
    shutil.rmtree(tmp_path / "state")
    if not is_lost:
        shutil.copytree(tmp_path / "copy", tmp_path / "state")
        asyncio.run(clean(elastic, tmp_path / "state"))
    put(b"4")
    with pytest.raises(rp.StateError):
        run_to_tip(elastic)

    file = tmp_path / "job.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in elastic.items()))
    examined = CliRunner().invoke(app, ["doctor", str(file)])
    assert examined.exit_code == 1, examined.output
    assert "positions import JOB --from file:positions.jsonl --force --apply" in " ".join(examined.output.split())
    shown = CliRunner().invoke(app, ["positions", "show", str(file), "--json"])
    assert shown.exit_code == 0, shown.output
    assert "these were read next to the sink's rows" in shown.stderr
    assert len([json.loads(line) for line in shown.stdout.splitlines()]) == 2
    lag = CliRunner().invoke(app, ["lag", str(file), "--json"])
    assert lag.exit_code == 0, lag.output
    assert "these were read next to the sink's rows" in lag.stderr
    unread = {line["shard"][-1]: line["unread"] for line in map(json.loads, lag.stdout.splitlines())}
    assert unread == {"0": True, "1": False}
    if is_lost:
        (tmp_path / "state").mkdir()
        group = CliRunner().invoke(app, ["group", "show", str(file)])
        assert group.exit_code == 1
        assert "the sink has positions with its rows" in " ".join(group.output.split())
    (tmp_path / "positions.jsonl").write_text(shown.stdout)
    source = f"file:{tmp_path}/positions.jsonl"
    imported = CliRunner().invoke(app, ["positions", "import", str(file), "--from", source, "--force", "--apply"])
    assert imported.exit_code == 0, imported.output

    assert [run_to_tip(elastic) for _ in range(2)] == [1, 0]
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        assert sorted(row for (row,) in database.execute("select data from t")) == [b"1", b"2", b"3", b"4"]
