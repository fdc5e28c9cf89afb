"""Archives in tables of Delta Lake and Iceberg: the contract of publishers, and other programs that change the table."""

from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from deltalake import DeltaTable

import recordpublisher as rp
from recordpublisher.plugins.archive.factory import ArchiveFactory
from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import ConfigurationError, DataLossError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.testing import PublisherCase, PublisherContract

from ..sinks.tables.lake_tables import Delta, Iceberg
from fakes.archives import PAYLOADS, SHARD, write_table_archive

ENDED = replace(SHARD, closed=True, is_unlisted=True)
FOUR = "1 shard, 4 ranges, from 2026-09-21T14:13:20.000Z; nothing is missing between them"
UNPROVEN = {"flink.archive.unproven": "true"}


def factory_of(table, **more):
    return ArchiveFactory(rp.Properties({**table.archive, "flink.archive.live": "NONE", **more}))


class TableContract(PublisherContract):
    deadline = 60.0  # a shared machine may be slow

    __test__ = False
    is_compacted = False
    more = {}  # noqa: RUF012

    @pytest.fixture(autouse=True)
    def _table(self, tmp_path):
        self.table = self.kind(tmp_path)

    @asynccontextmanager
    async def open_case(self):
        await write_table_archive(self.table, (5, 7, 14), **self.more)
        if self.is_compacted:
            self.table.compact()
        factory = factory_of(self.table)
        try:
            yield PublisherCase(factory, ENDED, PAYLOADS)
        finally:
            await factory.close()


class TestDelta(TableContract):
    __test__ = True
    kind = Delta


@pytest.mark.slow
class TestPartitionedDelta(TableContract):
    """The rows of a range are in several files."""

    __test__ = True
    kind = Delta
    more = {"flink.sink.partitions": "hour={eventTime:%H}"}  # noqa: RUF012


class TestCompactedDelta(TableContract):
    __test__ = True
    kind = Delta
    is_compacted = True
    more = {"flink.sink.partitions": "hour={eventTime:%H}"}  # noqa: RUF012


class TestIceberg(TableContract):
    __test__ = True
    kind = Iceberg


@pytest.mark.slow
class TestCompactedIceberg(TableContract):
    __test__ = True
    kind = Iceberg
    is_compacted = True


@pytest.fixture(params=[Delta, Iceberg])
def table(request, tmp_path):
    return request.param(tmp_path)


async def read(factory, start=StartingPosition.trim_horizon()):  # noqa: B008 - frozen
    batches = []

    async def consumer(batch):
        batches.append(batch)
        return batch.read_position

    try:
        publisher = await factory.create(ENDED, start, ShardMetrics())
        while await publisher.run(consumer) is not RunResult.COMPLETE:
            pass
    finally:
        await factory.close()
    return [payload for batch in batches for payload in batch.data]


async def examined(factory):
    try:
        return await factory.checks("orders")["archive"]()
    finally:
        await factory.close()


def ranges(table):
    return table.data / "_recordpublisher" / "ranges" / SHARD.key


async def test_a_compacted_table_is_read_if_its_rows_are_those_of_the_ranges(table):
    await write_table_archive(table, (5, 7, 14))
    table.compact()
    assert await examined(factory_of(table)) == (
        "1 shard, 1 range, from 2026-09-21T14:13:20.000Z; nothing is missing between them"
        if table.name == "delta"
        else "1 shard, 3 ranges, from 2026-09-21T14:13:20.000Z; nothing is missing between them"
    )
    assert await read(factory_of(table)) == PAYLOADS


async def test_a_table_that_is_compacted_now_and_then_is_read_through(table):
    await write_table_archive(table, (5, 7), is_ended=False, stop=14)
    table.compact()
    await write_table_archive(table, (20,), start=14)
    assert await read(factory_of(table)) == PAYLOADS


async def test_a_compacted_table_that_lacks_rows_is_refused_unless_that_is_wanted(table):
    await write_table_archive(table, (5, 7, 14))
    table.delete("sequenceNumber = '110'")
    with pytest.raises(ConfigurationError) as raised:
        await read(factory_of(table))
    text = str(raised.value)
    assert "was written without flink.sink.archive, or another program has rewritten it" in text
    assert "of orders/shardId-0, and the ranges of the archive promise" in text
    assert "flink.archive.unproven" in text
    assert await read(factory_of(table, **UNPROVEN)) == PAYLOADS[:10] + PAYLOADS[11:]


async def test_rows_that_were_deleted_as_whole_files_are_missing(table):
    await write_table_archive(table, (5, 7, 14))
    table.delete("sequenceNumber = '105' or (sequenceNumber = '106' and subSequenceNumber = 0)")
    with pytest.raises(DataLossError, match=r"records of orders/shardId-0 after 104 .* up to 106-0 are in no file of"):
        await read(factory_of(table))


async def test_a_table_that_was_written_without_an_archive_is_refused_unless_that_is_wanted(table):
    await write_table_archive(table, (5, 7, 14), **{"flink.sink.archive": "false"})
    with pytest.raises(
        ConfigurationError, match=r"flink\.archive\.unproven.* was written without flink\.sink\.archive"
    ):
        await factory_of(table).discover("orders")
    assert await read(factory_of(table, **UNPROVEN)) == PAYLOADS


async def test_a_range_whose_commit_was_never_published_counts_for_nothing(table):
    await write_table_archive(table, (5, 7, 14), is_ended=False)
    (ranges(table) / f"123.-1_150.-1.1of1.{'0' * 24}.3").touch()
    assert await examined(factory_of(table)) == FOUR
    assert await read(factory_of(table)) == PAYLOADS


async def test_a_table_without_its_names_of_ranges_is_refused(table):
    await write_table_archive(table, (5, 7, 14))
    for file in ranges(table).iterdir():
        file.unlink()
    with pytest.raises(ConfigurationError, match="and no range is known, so records may be missing"):
        await read(factory_of(table))


async def test_a_table_that_is_not_there(table):
    with pytest.raises(ConfigurationError, match="the catalog has no such table"):
        await read(factory_of(table))


async def test_the_positions_next_to_a_delta_table_say_when_its_job_saw_the_tip(table):
    """Those of an Iceberg job are elsewhere."""
    await write_table_archive(table, (14,), is_ended=False, tip_ms=7, stop=20)
    factory = factory_of(table)
    committed = dict(await factory._archive.catalogue.committed())
    await factory.close()
    assert [state.tip_ms for state in committed.values()] == ([7] if table.name == "delta" else [])


async def test_a_range_of_which_one_file_was_joined_with_others_is_complete(tmp_path):
    """A compaction of one partition leaves the other files of a range."""
    table = Delta(tmp_path)
    await write_table_archive(table, (5, 7, 14), **{"flink.sink.partitions": "hour={eventTime:%H}"})
    before = set(DeltaTable(str(table.data)).file_uris())
    DeltaTable(str(table.data)).optimize.compact(partition_filters=[("hour", "=", "16")])
    assert 0 < len(before & set(DeltaTable(str(table.data)).file_uris())) < len(before)
    assert await read(factory_of(table)) == PAYLOADS
