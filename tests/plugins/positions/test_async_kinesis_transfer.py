"""What a move between a job and async-kinesis refuses, and what it asks Kinesis for."""

import asyncio
import contextlib

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.positions.async_kinesis_checkpoints import ShardCheckpoint
from recordpublisher.plugins.positions.async_kinesis_transfer import AsyncKinesisTransfer
from recordpublisher.plugins.positions.job_positions import JobPositions
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

SHARDS = ["shardId-000000000000", "shardId-000000000001"]


class Table:
    """A table in memory."""

    place = "async-kinesis:orders"

    def __init__(self, *rows):
        self.rows = {row.shard_id: row for row in rows}
        self.exists = bool(rows)

    async def read(self):
        return list(self.rows.values()) if self.exists else None

    async def create(self):
        self.exists = True

    async def write(self, checkpoint, seen):
        assert self.rows.get(checkpoint.shard_id) == seen
        self.rows[checkpoint.shard_id] = checkpoint


def move(job, table, direction, pause=lambda: None, is_forced=False, apply=True, streams=None):
    async def watch(seconds):
        pause()

    async def run():
        positions = JobPositions(job)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(positions.close)
            client = await stack.enter_async_context(KinesisClient(job, [job["flink.streams"]]))
            transfer = AsyncKinesisTransfer(
                positions, table, client, streams or [job["flink.streams"]], job, 20, is_forced, pause=watch
            )
            plan = await (transfer.plan_import() if direction == "import" else transfer.plan_export())
            if apply:
                await (transfer.apply_import(plan) if direction == "import" else transfer.apply_export(plan))
            return plan

    return asyncio.run(run())


def states_of(job):
    async def run():
        positions = JobPositions(job)
        try:
            return (await positions.load()).merged.shards
        finally:
            await positions.close()

    return asyncio.run(run())


def store(job, states):
    async def run():
        positions = JobPositions(job)
        try:
            await positions.store({f"{job['flink.streams']}/{shard}": state for shard, state in states.items()})
        finally:
            await positions.close()

    asyncio.run(run())


def test_a_plan_writes_nothing_and_its_application_does(job):
    table = Table(ShardCheckpoint(SHARDS[0], "17"))
    move(job, table, "import", apply=False)
    assert not states_of(job)
    move(job, table, "import")
    assert states_of(job)[f"{job['flink.streams']}/{SHARDS[0]}"].position == SequenceNumber("17")


def test_the_way_back_makes_the_table(job):
    table = Table()
    store(job, {shard: ShardState(StartingPosition.trim_horizon(), SequenceNumber("18")) for shard in SHARDS})
    move(job, table, "export", apply=False)
    assert not table.exists
    move(job, table, "export")
    assert list(table.rows.values()) == [ShardCheckpoint(shard, "18") for shard in SHARDS]


@pytest.mark.parametrize("direction", ["import", "export"])
def test_a_living_consumer_is_an_error_unless_forced(job, direction):
    table = Table(ShardCheckpoint(SHARDS[0], "17", "app/1", 100))
    if direction == "export":
        store(job, {SHARDS[0]: ShardState(StartingPosition.trim_horizon(), SequenceNumber("18"))})

    def heartbeat():
        table.rows[SHARDS[0]] = ShardCheckpoint(SHARDS[0], "17", "app/1", 115)

    with pytest.raises(rp.StateError, match=r"is alive: 1 rows .* owned by app/1"):
        move(job, table, direction, heartbeat)
    table.rows[SHARDS[0]] = ShardCheckpoint(SHARDS[0], "17", "app/1", 100)
    assert move(job, table, direction, heartbeat, is_forced=True)


def test_a_row_ahead_of_the_job_is_an_error_unless_forced(job):
    table = Table(ShardCheckpoint(SHARDS[0], "19"))
    store(job, {SHARDS[0]: ShardState(StartingPosition.trim_horizon(), SequenceNumber("18"))})
    with pytest.raises(rp.StateError, match=r"async-kinesis:orders is ahead of the job"):
        move(job, table, "export")
    move(job, table, "export", is_forced=True)
    assert table.rows[SHARDS[0]] == ShardCheckpoint(SHARDS[0], "18")


def test_a_job_of_several_streams_is_an_error(job):
    with pytest.raises(rp.StateError, match=r"does not name its stream, and the job reads several"):
        move(job, Table(ShardCheckpoint(SHARDS[0], "19")), "import", streams=["orders", "clicks"])


@pytest.mark.parametrize("table", [Table(), None])
def test_a_table_without_rows_is_an_error(job, table):
    if table is None:
        table = Table()
        table.exists = True
    with pytest.raises(rp.StateError, match=r"async-kinesis:orders cannot be imported"):
        move(job, table, "import")


def test_kinesis_is_asked_whether_a_shard_without_known_position_has_records(job, endpoint):
    ended = ShardState(StartingPosition.trim_horizon(), ended=True)
    other = ShardState(StartingPosition.trim_horizon(), SequenceNumber("18"))
    store(job, {SHARDS[0]: ended, SHARDS[1]: other})
    assert [each.written.sequence for each in move(job, Table(), "export", apply=False)] == [None, "18"]
    endpoint.stream(job["flink.streams"]).put(*["record"] * 20)
    with pytest.raises(rp.StateError, match=r"does not know its last sequence number"):
        move(job, Table(), "export", apply=False)
