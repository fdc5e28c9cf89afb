"""A job whose sink keeps positions goes over to a group and back: every record is written once."""

import json
import sqlite3
from collections import Counter
from contextlib import closing

import pytest

import recordpublisher as rp
from recordpublisher.cli.commands.positions import file_transfer, stored_states
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.lag.job_state import JobStateReader
from recordpublisher.plugins.stores.by_location import conditional_store_of

SHARDS = 2


@pytest.fixture
def served():
    with serve_in_thread(streams={"orders": SHARDS}) as served:
        yield served


@pytest.fixture
def job(tmp_path, served):
    """Properties of the job under a name, with the same target for all names."""
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        database.execute("CREATE TABLE written (sequence_number text)")

    def properties(name, **more):
        return rp.Properties(
            {
                **served.endpoint.properties(),
                "flink.streams": "orders",
                "flink.stream.initpos": "TRIM_HORIZON",
                "flink.job.name": name,
                "flink.state.uri": f"sqlite:///{tmp_path}/state.db",
                "flink.sink": "sql",
                "flink.sink.sql.uri": f"sqlite:///{tmp_path}/rows.db",
                "flink.sink.sql.table": "written",
                **more,
            }
        )

    return properties


GROUP = {"flink.job.workers": "GROUP"}


def rows(folder):
    with closing(sqlite3.connect(folder / "rows.db")) as database:
        return [number for (number,) in database.execute("SELECT sequence_number FROM written")]


async def run(properties, served, records=10):
    """Send some records, and run the job until it has read them."""
    served.stream("orders").put(*range(records))
    async with rp.DataFetcher(["orders"], properties) as fetcher:
        await fetcher.run_bounded(max_time=60, max_records=records)


async def take_along(before, after, file):
    """What the commands `positions show --json > FILE` and `positions import --from file:FILE --apply` do."""
    states = await stored_states(before)
    file.write_text("\n".join(json.dumps({"shard": shard, **state.to_json()}) for shard, state in states.items()))
    async with file_transfer(after, file, is_forced=False) as transfer:
        await transfer.apply_import(await transfer.plan_import())


async def test_a_job_goes_over_to_a_group_and_back(tmp_path, served, job):
    for kind in ({}, GROUP, {}, GROUP):
        await run(job("job", **kind), served)

    written = Counter(rows(tmp_path))
    assert (len(written), set(written.values())) == (40, {1})


@pytest.mark.parametrize(("first", "second"), [({}, GROUP), (GROUP, {})], ids=["to a group", "from a group"])
async def test_positions_in_the_sink_whose_lease_table_is_in_another_store_are_refused(
    tmp_path, served, job, first, second
):
    await run(job("job", **first, **{"flink.state.uri": f"{tmp_path}/first"}), served)
    with pytest.raises(rp.StateError, match=r"has positions of worker .*, whose lease table is not in .*second"):
        await run(job("job", **second, **{"flink.state.uri": f"{tmp_path}/second"}), served)


@pytest.mark.parametrize("second", [{}, GROUP], ids=["alone", "a group"])
@pytest.mark.parametrize("first", [{}, GROUP], ids=["after alone", "after a group"])
async def test_a_start_without_the_state_store_of_the_job_is_refused(tmp_path, served, job, first, second):
    await run(job("job", **first), served)
    without = {key: value for key, value in job("job", **second).items() if key != "flink.state.uri"}
    with pytest.raises(
        rp.StateError, match=r"has positions of worker \w+, whose lease table is not there\. To continue"
    ):
        await run(rp.Properties(without), served)
    await run(job("job", **second), served)

    written = Counter(rows(tmp_path))
    assert len(written) >= 20
    assert set(written.values()) == {1}


async def test_positions_whose_lease_table_is_lost_are_imported_where_the_sink_keeps_them(tmp_path, served, job):
    await run(job("job", **GROUP), served)
    without = rp.Properties({key: value for key, value in job("job").items() if key != "flink.state.uri"})
    await take_along(without, without, tmp_path / "positions.jsonl")
    for kind in ({}, GROUP):
        await run(without.merged(kind), served)

    written = Counter(rows(tmp_path))
    assert (len(written), set(written.values())) == (30, {1})


@pytest.mark.slow
async def test_positions_go_over_to_a_group_and_back_through_a_file(tmp_path, served, job):
    static, elastic, back = job("static"), job("elastic", **GROUP), job("back")
    await run(static, served)
    await take_along(static, elastic, tmp_path / "to-group.jsonl")
    await run(elastic, served)
    await run(elastic, served)
    await take_along(elastic, back, tmp_path / "back.jsonl")
    await run(back, served)

    written = Counter(rows(tmp_path))
    assert (len(written), set(written.values())) == (40, {1})


async def test_the_positions_of_a_group_are_read_from_the_sink(served, job):
    properties = job("job", **GROUP)
    await run(properties, served)
    store = conditional_store_of(properties["flink.state.uri"], "flink.state.uri", properties)
    positions = JobStateReader(store, rp.SqlSink(properties))
    snapshots = await positions.load()
    await positions.close()

    assert [len(snapshot["shards"]) for snapshot in snapshots] == [SHARDS]
    assert all("position" in state for snapshot in snapshots for state in snapshot["shards"].values())
