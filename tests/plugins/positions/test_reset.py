"""A job goes on from another place: every shard or one, at the oldest record, the tip or a time."""

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from typing import ClassVar

import pytest

import recordpublisher as rp
from recordpublisher.cli.commands.positions import file_transfer, stored_states
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.positions.job_positions import job_and_lister
from recordpublisher.plugins.positions.reset import PositionsReset, reset_target
from recordpublisher.plugins.runtime.shard_lister import ShardLister
from recordpublisher.plugins.sinks.sql import SqlSink
from recordpublisher.publishers.positions import PositionType, StartingPosition

from fakes import memory_streams

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


async def read(job):
    """What a start of the job reads."""
    sink = rp.MemorySink()
    async with rp.DataFetcher(job["flink.streams"], job, sink=sink) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True)
        await fetcher.checkpoint()
    return sorted(record.data for record in sink.records)


async def reset(job, to, *shards, apply=True):
    async with job_and_lister(job) as (positions, service, streams):
        resetting = PositionsReset(positions, service, streams, job, reset_target(to), shards)
        plan = await resetting.plan()
        if apply:
            await resetting.apply(plan)
        return plan


@pytest.fixture
def put(kinesis, stream):
    """Put a record into the first shard, or the second."""

    def put(data, shard=FIRST):
        key = {FIRST: "0", SECOND: str(2**127)}[shard]
        kinesis.put_record(StreamName=stream, Data=data, PartitionKey="k", ExplicitHashKey=key)

    return put


async def test_by_a_function_that_says_from_where_each_shard_is_read(job, put):
    put(b"1")
    assert await read(job) == [b"1"]

    planned = await rp.reset_positions(job, "LATEST", dry_run=True)

    assert {place.type.value for place in planned.values()} == {"AT_TIMESTAMP"}
    assert await read(job) == []

    moved = await rp.reset_positions(job, datetime(2026, 1, 1, tzinfo=UTC), shard_ids=[FIRST])

    assert moved[f"{job['flink.streams']}/{FIRST}"] == StartingPosition.at_timestamp(1767225600000)
    assert await read(job) == [b"1"]
    with pytest.raises(rp.ConfigurationError, match=r"'to'.*'soon'"):
        await rp.reset_positions(job, "soon")


async def test_every_shard_from_the_oldest_record(job, put):
    put(b"1")
    put(b"2", SECOND)
    assert await read(job) == [b"1", b"2"]
    assert await read(job) == []

    await reset(job, "trim_horizon")

    assert await read(job) == [b"1", b"2"]


@pytest.mark.parametrize("name", [SECOND, f"{{}}/{SECOND}"], ids=["by its id", "as other commands show it"])
async def test_one_shard_and_the_other_goes_on_where_it_was(job, put, name):
    put(b"1")
    put(b"2", SECOND)
    await read(job)

    plan = await reset(job, "TRIM_HORIZON", name.format(job["flink.streams"]))

    assert [each.note for each in plan] == ["", "reset"]
    assert await read(job) == [b"2"]


async def test_from_a_time(job, put):
    put(b"1")
    await read(job)
    await asyncio.sleep(1.1)
    at = time.time()
    put(b"2")
    await read(job)

    await reset(job, str(at))

    assert await read(job) == [b"2"]


async def test_at_the_tip_what_came_before_is_not_read_and_what_comes_then_is(job, put):
    put(b"0")
    await read(job)
    put(b"1")
    await asyncio.sleep(1.1)

    await reset(job, "LATEST")
    put(b"2")

    assert await read(job) == [b"2"]


async def test_a_dry_run_changes_nothing(job, put):
    put(b"1")
    await read(job)

    await reset(job, "TRIM_HORIZON", apply=False)

    assert await read(job) == []


async def test_children_of_a_shard_keep_their_positions(job, put, endpoint, kinesis, stream):
    put(b"1")
    kinesis.split_shard(StreamName=stream, ShardToSplit=FIRST, NewStartingHashKey="1000")
    await read(job)

    plan = await reset(job, "TRIM_HORIZON", FIRST)

    assert next(each.note for each in plan if each.shard.endswith(FIRST)) == "its children keep their positions"
    assert await read(job) == [b"1"]


@pytest.mark.parametrize("to", ["TRIM_HORIZON", "LATEST"])
async def test_children_of_unread_parents_wait_for_them_in_a_group_too(job, put, kinesis, stream, to):  # S2, E7
    elastic = rp.Properties({**job, **GROUP})
    put(b"1")
    kinesis.split_shard(StreamName=stream, ShardToSplit=FIRST, NewStartingHashKey="1000")
    await read(elastic)

    plan = await reset(elastic, to)

    async with job_and_lister(elastic) as (positions, *_):
        table = (await GroupStore(positions._opened_store()).read_table()).document
    parent, other, *children = sorted(table.leases)
    assert (parent.endswith(FIRST), other.endswith(SECOND), len(children)) == (True, True, 2)
    assert [table.can_be_read(shard) for shard in (parent, other, *children)] == [True, True, False, False]
    starts = {each.shard: each.state.start for each in plan}
    assert {shard: table.initial_state(shard).start for shard in children} == {each: starts[each] for each in children}


async def test_a_child_whose_parent_was_read_to_its_end_does_not_wait(job, put, kinesis, stream):
    put(b"1")
    kinesis.split_shard(StreamName=stream, ShardToSplit=FIRST, NewStartingHashKey="1000")
    await read(job)
    plan = await reset(job, "TRIM_HORIZON", "shardId-000000000002", apply=False)
    (child,) = [each.state for each in plan if each.note == "reset"]
    assert (child.parents, child.waiting) == ((FIRST,), False)


async def test_a_job_without_positions_has_none_to_reset(job):
    with pytest.raises(
        rp.StateError,
        match=r"the job has stored no positions in .*, so there are none to reset: it starts where flink.stream.initpos says",
    ):
        await reset(job, "LATEST")


GROUP = {"flink.job.workers": "GROUP", "flink.lease.duration": "2000"}


async def test_a_group_in_which_nobody_is_is_reset_in_place(job, put):
    elastic = rp.Properties({**job, **GROUP})
    put(b"1")
    put(b"2", SECOND)
    assert await read(elastic) == [b"1", b"2"]

    await reset(elastic, "TRIM_HORIZON", SECOND)
    assert await read(elastic) == [b"2"]
    await reset(elastic, "TRIM_HORIZON")
    assert await read(elastic) == [b"1", b"2"]
    assert await read(elastic) == []


async def test_a_group_is_found_by_its_positions_when_the_properties_do_not_name_it(job, put):
    elastic = rp.Properties({**job, **GROUP})
    put(b"1")
    assert await read(elastic) == [b"1"]

    await reset(job, "TRIM_HORIZON")

    assert await read(elastic) == [b"1"]


async def test_a_group_is_not_reset_while_a_worker_runs(job, put):
    elastic = rp.Properties({**job, **GROUP})
    put(b"1")
    sink = rp.MemorySink()
    async with rp.DataFetcher(elastic["flink.streams"], elastic, sink=sink) as fetcher:
        running = asyncio.create_task(fetcher.run())
        while not sink.records:  # noqa: ASYNC110 - the endpoint is another thread
            await asyncio.sleep(0.05)
        await fetcher.checkpoint()
        with pytest.raises(rp.StateError, match="sends heartbeats: stop all processes of the job first"):
            await reset(elastic, "TRIM_HORIZON")
        fetcher.stop()
        await running
    assert await read(elastic) == []


def of_jsonl(folder):
    return {"flink.sink": "jsonl", "flink.sink.jsonl.path": f"{folder}/rows"}


def of_sql(folder):
    return {"flink.sink": "sql", "flink.sink.sql.uri": f"sqlite:///{folder}/rows.db", "flink.sink.sql.table": "t"}


def lines_of(folder):
    return sorted(line for each in (folder / "rows").rglob("*.jsonl") for line in each.read_text().splitlines())


def rows_of(folder):
    with closing(sqlite3.connect(folder / "rows.db")) as database:
        return sorted(row for (row,) in database.execute("select data from t"))


async def run_to_tip(job):
    async with rp.DataFetcher(job["flink.streams"], job) as fetcher:
        return (await fetcher.run_bounded(stop_at_tip=True)).records


@pytest.mark.parametrize(("sink", "written"), [(of_jsonl, lines_of), (of_sql, rows_of)])
async def test_the_positions_of_a_group_with_the_rows_of_its_sink_are_reset(job, put, tmp_path, sink, written):
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        database.execute("create table t (data text)")
    elastic = rp.Properties({**job, **GROUP, **sink(tmp_path), "flink.job.name": "shop"})
    put(b"1")
    put(b"2", SECOND)
    assert await run_to_tip(elastic) == 2

    await reset(elastic, "TRIM_HORIZON", SECOND)
    assert await run_to_tip(elastic) == 1
    await reset(elastic, "TRIM_HORIZON")
    assert [await run_to_tip(elastic) for _ in range(2)] == [2, 0]
    put(b"3")
    assert await run_to_tip(elastic) == 1
    if sink is of_sql:
        assert written(tmp_path) == [b"1", b"1", b"2", b"2", b"2", b"3"]
    else:
        assert len({*written(tmp_path)}) == 3


async def test_a_suspended_worker_commits_no_row_after_a_reset(job, put, tmp_path):
    elastic = rp.Properties({**job, **GROUP, **of_sql(tmp_path), "flink.job.name": "shop"})
    put(b"1")
    await run_to_tip(elastic)
    sink = SqlSink(elastic)
    entries = GroupStore(sink.entries())
    async with job_and_lister(elastic) as (positions, _, _):
        (worker,) = await GroupStore(positions._opened_store()).read_records()
    assert not (await entries.read_part(worker, 0)).document.is_sealed

    await reset(elastic, "TRIM_HORIZON")

    assert (await entries.read_part(worker, 0)).document.is_sealed
    await sink.close()


async def test_a_suspended_worker_whose_positions_are_in_the_state_store_commits_nothing_after_a_reset(job, put):  # S6
    """Its write of them would also commit the rows of a sink that keeps no positions, such as an Iceberg table."""
    elastic = rp.Properties({**job, **GROUP})
    put(b"1")
    await read(elastic)
    async with job_and_lister(elastic) as (positions, *_):
        group = GroupStore(positions._opened_store())
        (worker,) = await group.read_records()
        assert not (await group.read_part(worker, 0)).document.is_sealed

        await reset(elastic, "TRIM_HORIZON")

        assert (await group.read_part(worker, 0)).document.is_sealed


async def test_positions_with_the_rows_of_a_sink_are_reset_there(job, put, tmp_path):
    put(b"1")
    sink = {
        "flink.sink": "sql",
        "flink.job.name": "shop",
        "flink.sink.sql.uri": f"sqlite:///{tmp_path}/rows.db",
        "flink.sink.sql.table": "t",
        "flink.state.uri": None,
    }
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        database.execute("create table t (data text)")
    job = rp.Properties({**job, **sink})
    for _ in range(2):
        async with rp.DataFetcher(job["flink.streams"], job) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True)
        await reset(job, "TRIM_HORIZON")
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        assert database.execute("select count(*) from t").fetchone() == (2,)


class ListsOnly:
    """The service when the other shards have expired."""

    def __init__(self, service, shard):
        self._service, self._shard = service, shard
        self.server_time_ms = service.server_time_ms
        self.oldest_retained_ms = service.oldest_retained_ms

    async def list_shards(self, stream):
        return [shard for shard in await self._service.list_shards(stream) if shard.shard_id == self._shard]

    async def shard_exists(self, shard):
        return False


async def test_a_reset_of_every_shard_forgets_those_that_have_expired(job, put):
    """Their unread records are lost: with such a position each start would fail, however often the job is reset."""
    put(b"1")
    await read(job)
    async with job_and_lister(job) as (positions, service, streams):
        only_second = ListsOnly(service, SECOND)
        plan = await PositionsReset(positions, only_second, streams, job, reset_target("TRIM_HORIZON")).plan()
        assert [each.shard.rpartition("/")[2] for each in plan if each.is_stored] == [SECOND]
        assert [each.note for each in plan] == ["it has expired, and is forgotten", "reset"]

        plan = await PositionsReset(positions, only_second, streams, job, reset_target("LATEST"), [SECOND]).plan()
        assert [each.is_stored for each in plan] == [True, True]


async def test_a_closed_shard_that_one_listing_lacks_keeps_its_place_in_the_reset(job, put, kinesis, stream):
    put(b"1")
    kinesis.split_shard(StreamName=stream, ShardToSplit=FIRST, NewStartingHashKey="1000")
    assert await read(job) == [b"1"]
    async with job_and_lister(job) as (positions, service, streams):
        listing, listings = service.list_shards, []

        async def lacking(stream):
            listed = await listing(stream)
            listings.append(stream)
            return listed if len(listings) > 1 else [shard for shard in listed if shard.shard_id != FIRST]

        service.list_shards = lacking
        resetting = PositionsReset(positions, service, streams, job, reset_target("TRIM_HORIZON"))
        await resetting.apply(await resetting.plan())

    assert await read(job) == [b"1"]


async def test_after_a_reset_to_the_tip_a_long_outage_is_a_gap(job, put):  # P3, S5
    put(b"1")
    await read(job)
    at_tip, of_time = await reset(job, "LATEST", apply=False), await reset(job, "1795672800", apply=False)
    assert {each.state.seen_ms - each.state.start.timestamp_ms for each in at_tip} == {0}
    assert {each.state.seen_ms for each in of_time} == {None}


async def test_an_unknown_shard_is_refused(job, put):
    put(b"1")
    await read(job)
    with pytest.raises(rp.ConfigurationError, match=r"option '--shard' is 'shardId-9'\. Valid: a shard of orders"):
        await reset(job, "LATEST", "shardId-9")


@pytest.mark.parametrize(
    ("to", "place"),
    [
        ("latest", StartingPosition.latest()),
        ("TRIM_HORIZON", StartingPosition.trim_horizon()),
        ("2026-11-26T06:00:00Z", StartingPosition.at_timestamp(1_795_672_800_000)),
        ("1795672800", StartingPosition.at_timestamp(1_795_672_800_000)),
        ("earliest", StartingPosition.trim_horizon()),
        ("2d", StartingPosition(PositionType.LATEST, ago_ms=172_800_000)),
    ],
)
def test_places_are_named_as_in_properties(to, place):
    assert reset_target(to) == place


@pytest.mark.parametrize("to", ["", "yesterday", "AT_TIMESTAMP", "-5"])
def test_a_place_that_is_none_is_refused(to):
    with pytest.raises(
        rp.ConfigurationError,
        match=r"option '--to'.*TRIM_HORIZON \(or earliest\), LATEST, an age such as 1h, or a time: 2026",
    ):
        reset_target(to)


async def test_a_job_that_runs_is_fenced_off(job, put):
    put(b"1")
    put(b"2", SECOND)
    async with rp.DataFetcher(job["flink.streams"], job, sink=rp.MemorySink()) as running:
        await running.run_bounded(stop_at_tip=True)
        await running.checkpoint()
        await reset(job, "TRIM_HORIZON")

        with pytest.raises(rp.FencedError):
            await running.checkpoint()

    assert await read(job) == [b"1", b"2"]


class TestAPublisherThatListsItsShards:
    """Kinesis has a stream of the same name, and other shards."""

    @pytest.fixture
    def own(self, job, monkeypatch):
        memory_streams.install(monkeypatch, {"p0": [b"1"], "p1": [b"2"]})
        return job.merged(memory_streams.PROPERTIES)

    async def test_its_shards_are_reset(self, own):
        assert await read(own) == [b"1", b"2"]

        moved = await rp.reset_positions(own, "TRIM_HORIZON")

        assert set(moved) == {f"{own['flink.streams']}/p0", f"{own['flink.streams']}/p1"}
        assert await read(own) == [b"1", b"2"]

    async def test_a_listing_without_shards_forgets_no_positions(self, own, monkeypatch):
        await read(own)
        monkeypatch.setattr(memory_streams.MemoryFactory, "shards", {})

        with pytest.raises(
            rp.StateError, match=r"^the listing of .* has no shard, so nothing is reset: try again later$"
        ):
            await rp.reset_positions(own, "LATEST")

        assert len(await stored_states(own)) == 2

    async def test_a_listing_that_lacks_a_shard_for_a_moment_forgets_no_position(self, own, monkeypatch):
        await read(own)
        discover, listings = memory_streams.MemoryFactory.discover, []

        async def lacking(factory, stream):
            listed = await discover(factory, stream)
            listings.append(stream)
            return listed if len(listings) > 2 else listed[1:]

        monkeypatch.setattr(memory_streams.MemoryFactory, "discover", lacking)

        moved = await rp.reset_positions(own, "LATEST")

        assert {key.rpartition("/")[2] for key in moved} == {"p0", "p1"}
        assert len(await stored_states(own)) == 2

    async def test_a_shard_that_no_listing_has_any_more_is_forgotten(self, own, monkeypatch):
        await read(own)
        monkeypatch.setattr(memory_streams.MemoryFactory, "shards", {"p1": [b"2"]})

        moved = await rp.reset_positions(own, "TRIM_HORIZON")

        assert {key.rpartition("/")[2] for key in moved} == {"p1"}

    async def test_its_shards_are_imported(self, own, tmp_path):
        await read(own)
        file, imported = tmp_path / "positions", own.merged({"flink.state.uri": str(tmp_path / "imported")})
        states = await stored_states(own)
        file.write_text("\n".join(json.dumps({"shard": key, **state.to_json()}) for key, state in states.items()))

        async with file_transfer(imported, file, False) as transfer:
            plan = await transfer.plan_import()
            await transfer.apply_import(plan)

        assert [each.note for each in plan] == ["", ""]
        assert await read(imported) == []


class KeepingSink(rp.Sink):
    """A sink of another package that stores the state with its rows."""

    stored: ClassVar[list[dict]] = []
    rows: ClassVar[list[bytes]] = []
    owner: ClassVar[object] = None
    stores_only_rows = False

    def __init__(self, properties):
        self.waiting = []

    async def open(self, context):
        type(self).owner = self
        return self.stored[0] if self.stored else None

    async def write(self, batch):
        self.waiting += batch.data

    async def flush(self, checkpoint=None):
        if type(self).owner is not self:
            raise rp.FencedError("another start has opened the sink")
        if checkpoint is not None and (self.waiting or not self.stores_only_rows):
            self.stored[:] = [json.loads(json.dumps(checkpoint.state))]
            self.rows.extend(self.waiting)
            self.waiting = []

    async def stored_positions(self):
        return list(self.stored)


class Plugin(memory_streams.Streams):
    @rp.hookimpl
    def recordpublisher_register_sinks(self, registry):
        registry.add("keeping", KeepingSink)


class TestASinkThatStoresThePositionsItself:
    @pytest.fixture
    def own(self, monkeypatch):
        memory_streams.install(monkeypatch, {"p0": [b"1"], "p1": [b"2"]})
        for module in ("runtime.data_fetcher", "positions.job_positions"):
            monkeypatch.setattr(f"recordpublisher.plugins.{module}.load_registry", lambda: load_registry([Plugin()]))
        for name, value in {"stored": [], "rows": []}.items():
            monkeypatch.setattr(KeepingSink, name, value)
        return rp.Properties({**memory_streams.PROPERTIES, "flink.streams": "orders", "flink.sink": "keeping"})

    async def run(self, own):
        async with rp.DataFetcher("orders", own) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True)
        return sorted(KeepingSink.rows)

    @pytest.mark.parametrize("has_store", [False, True])
    async def test_its_positions_are_reset_in_it(self, own, tmp_path, has_store):
        own = own.merged({"flink.state.uri": str(tmp_path) if has_store else None})
        assert await self.run(own) == [b"1", b"2"]
        assert await self.run(own) == [b"1", b"2"]

        await reset(own, "TRIM_HORIZON", "p1")

        assert await self.run(own) == [b"1", b"2", b"2"]

    async def test_a_job_that_runs_is_fenced_off(self, own):
        async with rp.DataFetcher("orders", own) as running:
            await running.run_bounded(stop_at_tip=True)
            await reset(own, "TRIM_HORIZON")

            with pytest.raises(rp.FencedError):
                await running.checkpoint()

    async def test_a_sink_that_does_not_store_the_state_is_named(self, own, monkeypatch):
        await self.run(own)
        monkeypatch.setattr(KeepingSink, "stores_only_rows", True)

        with pytest.raises(rp.StateError, match=r"`KeepingSink\.stored_positions` does not return the positions that"):
            await reset(own, "TRIM_HORIZON")

    async def test_without_positions_there_is_nothing_to_reset(self, own):
        with pytest.raises(
            rp.StateError, match="the job has stored no positions in KeepingSink, so there are none to reset: it starts"
        ):
            await reset(own, "TRIM_HORIZON")

    async def test_positions_of_a_wrong_type_name_the_method(self, own, monkeypatch):
        async def stored_positions(self):
            return 7

        monkeypatch.setattr(KeepingSink, "stored_positions", stored_positions)
        with pytest.raises(
            rp.PluginError, match=r"`KeepingSink\.stored_positions` returned 7: return None, or the state"
        ):
            await stored_states(own)


async def test_a_reset_to_a_time_before_the_retention_says_since_when_there_are_records(job, put):
    put(b"1")
    await read(job)
    (first, _), (later, _) = [await reset(job, to, apply=False) for to in ("2d", "20h")]

    assert first.note.startswith("reset; earlier records than 20")
    assert first.note.endswith(" are past retention")
    assert later.note == "reset"


async def test_a_reset_does_not_need_the_retention(job, put, monkeypatch):
    async def unknown(self, stream):
        raise rp.PluginError("the archive does not know it")

    put(b"1")
    await read(job)
    monkeypatch.setattr(ShardLister, "oldest_retained_ms", unknown)
    await reset(job, "2d")
    assert await read(job) == [b"1"]


async def test_a_group_says_where_it_begins_anew_and_where_it_continues(job, put, caplog):
    put(b"1")
    given = job.merged({"flink.job.workers": "GROUP", "flink.job.name": "a"})

    async def run():
        async with rp.DataFetcher(given["flink.streams"], given, sink=rp.MemorySink()) as fetcher:
            await fetcher.run_bounded(max_time=3)

    with caplog.at_level("INFO", "recordpublisher.start"):
        await run()
        await rp.reset_positions(given, "1h")
        await run()
    lines = [line.partition(" reads ")[2] for line in caplog.messages if "; it " in line]
    stream = given["flink.streams"]
    assert lines == [
        f"{stream}; it begins at TRIM_HORIZON: no positions are stored",
        f"{stream}; it continues at stored positions of 2 shards",
    ]
