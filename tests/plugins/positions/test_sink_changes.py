"""A job changes to a sink that keeps its positions with its rows, and back: no start begins anew, and the named remedies work."""

import json
import logging
import shutil

import pytest

import recordpublisher as rp
from recordpublisher.cli.commands.positions import stored_states
from recordpublisher.plugins.positions.file_import import FileTransfer
from recordpublisher.plugins.positions.job_positions import job_and_lister

REFUSED = r"keeps them with its rows.*positions show.*positions import.*--force"


@pytest.fixture(params=["sql", "jsonl"])
def keeping(request, tmp_path):
    """The properties of a sink that keeps its positions."""
    return {
        "sql": {"flink.sink": "sql", "flink.sink.sql.uri": f"sqlite:///{tmp_path}/rows.db"},
        "jsonl": {"flink.sink": "jsonl", "flink.sink.jsonl.path": f"{tmp_path}/rows"},
    }[request.param]


@pytest.fixture
def put(kinesis, stream):
    return lambda *names: [kinesis.put_record(StreamName=stream, Data=name, PartitionKey="k") for name in names]


@pytest.fixture(params=["ALONE", "GROUP"])
def named(request, job):
    lease = {"flink.lease.duration": "2000", "flink.lease.heartbeat.interval": "200"}
    return job.merged({"flink.job.name": "orders", "flink.job.workers": request.param, **lease})


async def read(job, **more):
    """What a start of the job with the sink `map` reads."""
    handled = []
    sink = rp.MapSink(lambda record: handled.append(record.data))
    async with rp.DataFetcher(job["flink.streams"], {**job, **more}, sink=sink) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True)
    return handled


async def write(job, keeping):
    """Let the sink that keeps positions write what is there."""
    async with rp.DataFetcher(job["flink.streams"], {**job, **keeping}, sink=keeping["flink.sink"]) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True)


async def changed_to(named, keeping, put):
    put(b"1")
    assert await read(named) == [b"1"]
    put(b"2")
    await write(named, keeping)
    put(b"3")


@pytest.mark.parametrize("start", ["TRIM_HORIZON", "LATEST"])
async def test_back_to_a_sink_without_positions_is_refused_and_continues_with_them(
    named, keeping, put, tmp_path, start
):
    if start == "LATEST":
        named = named.merged({"flink.stream.initpos": "LATEST"})
        assert await read(named) == []
    await changed_to(named, keeping, put)

    with pytest.raises(rp.StateError, match=REFUSED):
        await read(named)

    await carry_over(named.merged(keeping), named, tmp_path / "p.jsonl")
    assert await read(named) == [b"3"]


async def carry_over(from_job, to_job, path):
    """`positions show --json`, and `positions import --force --apply`."""
    path.write_text(
        "\n".join(
            json.dumps({"shard": key, **state.to_json()}) for key, state in (await stored_states(from_job)).items()
        )
    )
    async with job_and_lister(to_job) as (positions, lister, streams):
        transfer = FileTransfer(positions, path, lister, streams, to_job, is_forced=True)
        await transfer.apply_import(await transfer.plan_import())


async def test_the_refused_start_ends_nothing_and_the_other_sink_continues(named, keeping, put):
    await changed_to(named, keeping, put)
    with pytest.raises(rp.StateError, match=REFUSED):
        await read(named)
    await write(named, keeping)
    assert {one["position"] for one in await positions_of(named, keeping)} != {None}


async def positions_of(named, keeping):
    return [state.to_json() for state in (await stored_states(named.merged(keeping))).values() if state.position]


async def test_a_reset_gives_the_job_positions_again(named, keeping, put):
    await changed_to(named, keeping, put)
    assert set(await rp.reset_positions(named, "TRIM_HORIZON")) == {
        f"{named['flink.streams']}/shardId-00000000000{number}" for number in range(2)
    }
    assert sorted(await read(named)) == [b"1", b"2", b"3"]


async def test_a_reset_of_one_shard_is_refused_because_the_others_have_no_position(named, keeping, put):
    await changed_to(named, keeping, put)
    with pytest.raises(rp.StateError, match=REFUSED):
        await rp.reset_positions(named, "TRIM_HORIZON", shard_ids=["shardId-000000000000"])


async def test_a_group_does_not_take_over_a_job_alone_whose_positions_are_in_its_sink(job, keeping, put):
    alone = job.merged({"flink.job.name": "orders"})
    await changed_to(alone, keeping, put)
    with pytest.raises(rp.StateError, match=REFUSED):
        await read(alone, **{"flink.job.workers": "GROUP"})


async def test_another_table_elsewhere_does_not_begin_anew(job, keeping, put, tmp_path):
    alone = job.merged({"flink.job.name": "orders"})
    await changed_to(alone, keeping, put)
    elsewhere = {key: value.replace("/rows", "/other") for key, value in keeping.items()}
    with pytest.raises(rp.StateError, match=REFUSED.partition("positions show")[0]):
        await write(alone, elsewhere)


async def test_the_line_of_the_start_names_where_the_positions_are(job, keeping, put, caplog):
    caplog.set_level(logging.INFO, "recordpublisher.start")
    await write(job.merged({"flink.job.name": "orders"}), keeping)
    [line] = [line for line in caplog.messages if "runs alone" in line]
    assert line.partition("with the positions in ")[2].count("rows") == 1, line


async def test_a_sink_whose_positions_were_deleted_is_told_how_to_begin_elsewhere(job, put, tmp_path):
    rows = tmp_path / "rows"
    keeping = {"flink.sink": "jsonl", "flink.sink.jsonl.path": str(rows), "flink.job.name": "orders"}
    put(b"1")
    await write(job, keeping)
    shutil.rmtree(rows / ".recordpublisher")
    with pytest.raises(
        rp.StateError, match=r"If they are lost, .* begin elsewhere with `recordpublisher positions reset`"
    ):
        await write(job, keeping)

    await rp.reset_positions(job.merged(keeping), "TRIM_HORIZON")
    async with rp.DataFetcher(job["flink.streams"], {**job, **keeping}, sink="jsonl") as fetcher:
        assert (await fetcher.run_bounded(stop_at_tip=True)).records == 1
