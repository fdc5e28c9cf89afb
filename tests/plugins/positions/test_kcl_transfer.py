"""A job's positions moved from the KCL and back: every record once; and what is refused."""

import asyncio
import functools

import pytest

import recordpublisher as rp
from recordpublisher.plugins.positions.job_positions import job_and_lister
from recordpublisher.plugins.positions.kcl_transfer import KclTransfer
from recordpublisher.testing import archive_of, record

from fakes.kcl.lease_table import KclTable, lease_item
from fakes.kcl.moves import SHARDS, Listing, Mover, put_numbers
from fakes.kcl.worker import KclWorker

LEADER = {"leaseKey": {"S": "Leader"}, "entityType": {"S": "LEADER"}}


@pytest.fixture
def mover(job, kinesis):
    return Mover(job, kinesis)


@pytest.fixture
def table():
    """What the KCL writes when it has seen a stream of two shards for the first time."""
    return KclTable(*map(lease_item, SHARDS))


@pytest.fixture
def put(endpoint, stream):
    """Puts numbers: in each shard an aggregate of five, then single records."""

    return functools.partial(put_numbers, endpoint, stream)


def run_job(job):
    """The numbers that the job reads from its positions to the tip."""

    async def run():
        sink = rp.MemorySink()
        async with rp.DataFetcher([job["flink.streams"]], job, sink=sink) as fetcher:
            await fetcher.run_bounded(stop_at_tip=True, max_time=60)
        return [int(record.data) for record in sink.records]

    return asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("publisher", ["POLLING", "EFO"])
@pytest.mark.parametrize("most", [1, 5, 8])
def test_every_record_is_read_once_from_the_kcl_to_a_job_and_back(mover, kinesis, table, put, most, publisher):
    """`most`: what the KCL reads of each shard first; 1 is within its aggregate, 5 is at its end, 8 is a record of its own.

    What the job reads last is an aggregate.
    """
    worker = KclWorker(kinesis, table, mover.job["flink.streams"])
    expected = put(range(20))
    found = worker.read(most)

    mover.move("import", table)
    expected += put(range(20, 30))
    efo = {"flink.stream.recordpublisher": publisher, "flink.stream.efo.consumername": "reader"}
    found += run_job(mover.job.merged(efo))
    assert sorted(found) == expected

    mover.move("export", table)
    expected += put(range(30, 50))
    found += worker.read()
    assert sorted(found) == expected


def test_a_stream_that_is_split_on_both_sides_is_read_once(mover, kinesis, stream, table, put):
    worker = KclWorker(kinesis, table, stream)
    expected = put(range(20))
    found = worker.read(4)
    kinesis.split_shard(StreamName=stream, ShardToSplit=SHARDS[0], NewStartingHashKey=str(2**126))
    expected += put(range(20, 40))

    mover.move("import", table)
    found += run_job(mover.job)
    kinesis.split_shard(StreamName=stream, ShardToSplit=SHARDS[1], NewStartingHashKey=str(3 * 2**126))
    expected += put(range(40, 60))

    mover.move("export", table)
    found += worker.read()
    assert sorted(found) == expected


def test_positions_that_nobody_moved_come_back_as_they_were(mover, kinesis, stream, table, put):
    put(range(20))
    KclWorker(kinesis, table, stream).read(3)
    before = table.checkpoints()
    mover.move("import", table)
    mover.move("export", table)
    assert table.checkpoints() == before


def test_a_lease_that_was_written_has_no_owner_and_a_new_counter(mover, table):
    pending = {"pendingCheckpoint": {"S": "17"}, "pendingCheckpointSubSequenceNumber": {"N": "0"}}
    table.put(lease_item(SHARDS[0], **pending))
    mover.move("import", table)
    mover.move("export", table)
    row = table.rows[SHARDS[0]]
    assert row["leaseCounter"] == {"N": "18"}
    assert not {"leaseOwner", *pending} & row.keys()


def test_a_missing_table_is_created(mover, table):
    mover.move("import", table)
    created = KclTable(exists=False)
    mover.move("export", created)
    assert created.exists
    assert sorted(created.rows) == SHARDS


def test_rows_that_are_no_leases_stay(mover, table):
    table.put(LEADER)
    mover.move("import", table)
    mover.move("export", table)
    assert table.rows["Leader"] == LEADER


def test_a_plan_writes_nothing(mover, table, tmp_path):
    before = dict(table.rows)
    mover.plan("import", table)
    assert not (tmp_path / "state").exists()
    mover.move("import", table)
    mover.plan("export", table)
    assert table.rows == before


def renewal(table):
    """A worker of the KCL renews a lease."""
    return lambda: table.put(lease_item(SHARDS[0], leaseCounter={"N": "18"}))


@pytest.mark.parametrize("direction", ["import", "export"])
def test_a_living_worker_is_seen_by_its_lease_counter(mover, table, direction):
    if direction == "export":
        mover.move("import", table)
    with pytest.raises(rp.StateError, match=r"a worker of the KCL is alive: 1 lease .* within 20 s, owned by worker-1"):
        mover.plan(direction, table, renewal(table))
    table.put(lease_item(SHARDS[0]))
    assert len(mover.plan(direction, table, renewal(table), is_forced=True)) == 2


def test_a_job_with_positions_is_not_imported_into(mover, table, put):
    put(range(20))
    run_job(mover.job)
    with pytest.raises(rp.StateError, match="the job has positions of orders"):
        mover.plan("import", table)
    mover.move("import", table, is_forced=True)
    assert sorted(run_job(mover.job)) == [*range(20)]


def test_a_running_job_is_not_exported(mover, table, put):
    mover.move("import", table)
    put(range(2))
    with pytest.raises(rp.StateError, match="the job is running"):
        mover.plan("export", table, pause=lambda: run_job(mover.job))


def test_a_table_that_is_ahead_of_the_job_is_not_put_back(mover, kinesis, stream, table, put):
    put(range(20))
    mover.move("import", table)
    KclWorker(kinesis, table, stream).read(3)
    with pytest.raises(rp.StateError, match=f"ahead of the job.*{stream}/{SHARDS[0]}, {stream}/{SHARDS[1]}"):
        mover.plan("export", table)
    mover.move("export", table, is_forced=True)
    assert set(table.checkpoints().values()) == {("TRIM_HORIZON", 0)}


def test_a_row_that_changes_after_the_plan_is_not_overwritten(mover, table):
    mover.move("import", table)
    with pytest.raises(rp.StateError, match=f"the lease {SHARDS[0]} .* was changed in the meantime"):
        mover.move("export", table, before_apply=renewal(table))
    assert table.rows[SHARDS[0]]["leaseCounter"] == {"N": "18"}


@pytest.mark.parametrize(
    ("empty", "message"),
    [(KclTable(exists=False), "no such table"), (KclTable(), "no leases"), (KclTable(LEADER), "no leases")],
)
def test_a_table_without_leases_is_not_imported(mover, empty, message):
    with pytest.raises(rp.StateError, match=message):
        mover.plan("import", empty)


def test_a_job_that_has_stored_nothing_is_not_exported(mover, table):
    with pytest.raises(rp.StateError, match="stored no positions"):
        mover.plan("export", table)


@pytest.mark.parametrize("has_read_all", [True, False])
def test_a_shard_that_only_the_archive_has_gets_no_lease(job, stream, put, has_read_all):
    archived = [
        record(b"old", stream=stream, shard_id="shardId-archived", sequence_number=number) for number in (1, 2, 3)
    ]
    put(range(20))

    async def export(job, is_forced=False):
        async with job_and_lister(job) as (positions, lister, streams):
            transfer = KclTransfer(positions, KclTable(), lister, streams, job, 0, is_forced)
            return [each.written.shard_id for each in await transfer.plan_export()]

    async def run():
        with archive_of(archived) as reading:
            archive = job.merged({**reading, "flink.archive.live": "POLLING"})
            async with rp.DataFetcher(stream, archive, sink=rp.MemorySink()) as fetcher:
                await fetcher.run_bounded(stop_at_tip=True, max_records=None if has_read_all else 1)
            if not has_read_all:
                with pytest.raises(
                    rp.StateError, match=f"has not read the archived {stream}/shardId-archived to the end"
                ):
                    await export(archive)
            return await export(archive, is_forced=not has_read_all)

    assert asyncio.run(run()) == SHARDS


def test_a_shard_that_the_listing_lacks_for_a_moment_is_not_left_without_a_lease(mover, table, put, monkeypatch):
    """The KCL would begin it at its own start, and could leave out records that the job has not read."""
    put(range(20))
    mover.move("import", table)
    run_job(mover.job)
    listed = Listing.list_shards

    async def lacking(self, stream):
        return [shard for shard in await listed(self, stream) if shard.shard_id != SHARDS[1]]

    monkeypatch.setattr(Listing, "list_shards", lacking)
    with pytest.raises(rp.StateError, match=rf"lacks \S+/{SHARDS[1]}, which the job has not read to the end"):
        mover.plan("export", table)
    assert [each.written.key for each in mover.plan("export", table, is_forced=True)] == SHARDS[:1]
