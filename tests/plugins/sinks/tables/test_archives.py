"""What a table sink writes with `flink.sink.archive`: files of one shard, names that say in which ranges they are complete, documents."""

import json
from dataclasses import replace

import msgspec
import pytest

from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.plugins.sinks.tables.staged_data_files import RangeProof
from recordpublisher.plugins.stores.folder_store import FolderStore
from recordpublisher.publishers.errors import ConfigurationError, SinkError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

from .lake_tables import Delta, Iceberg, number, opened, payloads

ARCHIVE = {"flink.sink.archive": "true"}
FIRST, SECOND = Shard("orders", "shardId-0"), Shard("orders", "shardId-1")
HORIZON = StartingPosition.trim_horizon()


@pytest.fixture(params=[Delta, Iceberg])
def table(request, tmp_path):
    return request.param(tmp_path)


def batch(shard, *numbers, until=None):
    rows = [UserRecord(str(n).encode(), str(n), 1_790_000_000.0 + n, "key") for n in numbers]
    return RecordBatch(shard, rows, read_position=SequenceNumber(str(until or numbers[-1])), raw_count=1, raw_bytes=1)


def after(n):
    return StartingPosition.after(SequenceNumber(str(n)))


def ranges(table):
    """The ranges of each shard, with the number of rows; None for one without records."""
    found = {}
    for file in sorted((table.data / "_recordpublisher" / "ranges").glob("*/*/*")):
        proof = RangeProof.parsed(file.name)
        told = (file.name, None) if proof is None else (f"{proof.covered} {proof.part}of{proof.parts}", proof.rows)
        found.setdefault(file.parent.name, []).append(told)
    return found


async def documents(table):
    found = await FolderStore(table.data / "_recordpublisher" / "shards", None).list("orders/")
    return {name: json.loads(each.value) for name, each in found.items()}


async def test_each_file_is_of_one_shard_and_its_range_begins_where_the_one_before_ended(table):
    sink = await opened(table, **ARCHIVE)
    sink.shard_listed(FIRST, 5)
    sink.shard_started(FIRST, HORIZON, follows_parents=True)
    sink.shard_started(SECOND, after(7), follows_parents=False)
    await sink.write(batch(FIRST, 1, 2))
    await sink.write(batch(SECOND, 8))
    await sink.write(batch(FIRST, 3, until=4))
    await sink.publish([await sink.stage(number(1))])
    await sink.write(batch(FIRST, 5))
    sink.shard_ended(FIRST, [replace(SECOND, parents=(FIRST.shard_id,))])
    await sink.publish([await sink.stage(number(2))])
    await sink.close()
    assert ranges(table) == {
        "shardId-0": [("4.-1_5.-1 1of1", 1), ("BEGIN_4.-1 1of1", 3)],
        "shardId-1": [("7.-1_8.-1 1of1", 1)],
    }
    assert await documents(table) == {
        "orders/shardId-0": {
            "stream": "orders",
            "id": "shardId-0",
            "openMs": 5,
            "end": {"through": "5.-1", "children": ["shardId-1"]},
        }
    }
    assert payloads(table) == [b"1", b"2", b"3", b"5", b"8"]


async def test_the_ranges_are_there_before_the_table_has_the_files(table):
    sink = await opened(table, **ARCHIVE)
    await sink.write(batch(FIRST, 1))
    staged = await sink.stage(number(1))
    seen, commit = [], sink._table.commit
    sink._table.commit = lambda *rest, **more: (seen.append(ranges(table)), commit(*rest, **more))
    assert ranges(table) == {}
    await sink.publish([staged])
    await sink.publish([staged])  # as the next start may do
    assert seen == [{"shardId-0": [("AT-1.-1_1.-1 1of1", 1)]}]
    assert payloads(table) == [b"1"]
    await sink.close()


async def test_records_of_which_none_can_be_written_are_a_range_without_files(table):
    sink = await opened(table, **ARCHIVE)
    sink.shard_listed(FIRST, 5)
    sink.shard_started(FIRST, after(1), follows_parents=False)
    sink.shard_passed(FIRST, SequenceNumber("4"))
    staged = await sink.stage(number(1))
    assert await sink.unpublished([staged]) == []
    await sink.publish([staged])
    await sink.publish([staged])
    await sink.write(batch(FIRST, 5))
    sink.shard_passed(FIRST, SequenceNumber("7"))
    await sink.publish([await sink.stage(number(2))])
    assert await sink.stage(number(3)) is None
    await sink.close()
    assert ranges(table) == {"shardId-0": [("1.-1_4.-1", None), ("4.-1_7.-1 1of1", 1)]}


async def test_a_gap_within_a_stage_ends_the_files_of_its_shard(table):
    sink = await opened(table, **ARCHIVE)
    sink.shard_started(FIRST, HORIZON, follows_parents=True)
    await sink.write(batch(FIRST, 1, 2))
    sink.shard_started(FIRST, HORIZON, follows_parents=False)
    await sink.write(batch(FIRST, 11, 12))
    await sink.publish([await sink.stage(number(1))])
    await sink.close()
    assert ranges(table) == {"shardId-0": [("AT-11.-1_12.-1 1of1", 2), ("BEGIN_2.-1 1of1", 2)]}


async def test_the_files_of_a_range_in_several_partitions_are_its_parts(table):
    sink = await opened(table, **ARCHIVE, **{"flink.sink.partitions": "hour={eventTime:%H}"})
    sink.shard_started(FIRST, HORIZON, follows_parents=True)
    await sink.write(batch(FIRST, 1, 4000, 4001))
    await sink.publish([await sink.stage(number(1))])
    await sink.close()
    assert sorted(ranges(table)["shardId-0"]) == [("BEGIN_4001.-1 1of2", 1), ("BEGIN_4001.-1 2of2", 2)]


async def test_a_shard_that_moves_away_takes_its_ranges_with_it(table):
    sink = await opened(table, **ARCHIVE)
    sink.assigned([FIRST.key, SECOND.key])
    for shard in (FIRST, SECOND):
        sink.shard_started(shard, HORIZON, follows_parents=True)
        await sink.write(batch(shard, 1))
    await sink._write_waiting()
    sink.shard_ended(FIRST, [])
    sink.revoked([FIRST.key])
    await sink.publish([await sink.stage(number(1))])
    await sink.close()
    assert ranges(table) == {"shardId-1": [("BEGIN_1.-1 1of1", 1)]}
    assert all("end" not in each for each in (await documents(table)).values())


async def test_a_commit_that_is_taken_back_leaves_no_range(table):
    sink = await opened(table, **ARCHIVE)
    sink.shard_started(FIRST, HORIZON, follows_parents=True)
    await sink.write(batch(FIRST, 1))
    first = await sink.stage(number(1))
    sink.shard_passed(FIRST, SequenceNumber("4"))
    second = await sink.stage(number(2))
    sink._table.commit, commit = None, sink._table.commit
    with pytest.raises(TypeError):
        await sink.publish([first, second])
    sink._table.commit = commit
    assert ranges(table) == {"shardId-0": [("BEGIN_1.-1 1of1", 1)]}
    assert await sink.take_back([first, second]) == [first, second]
    assert ranges(table) == {}
    await sink.close()


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"flink.deserializer.compression": "GZIP"}, "an archive has payloads as they were received"),
        ({"flink.sink.partitions": "partitionKey={partitionKey}"}, "the files would then lack the column partitionKey"),
    ],
)
def test_what_an_archive_refuses(tmp_path, more, text):
    with pytest.raises(ConfigurationError, match=text):
        Delta(tmp_path).sink(**ARCHIVE, **more)


async def test_columns_of_fields_are_refused(table):
    order = msgspec.defstruct("Order", [("item", str)])
    with pytest.raises(
        ConfigurationError, match=r"the columns of fields replace 'data'.*flink\.sink\.parquet\.columns=RECORD"
    ):
        await opened(table, context=SinkContext(value_type=order), **ARCHIVE)
    sink = await opened(
        table, context=SinkContext(value_type=order), **ARCHIVE, **{"flink.sink.parquet.columns": "RECORD"}
    )
    await sink.close()


async def test_names_that_cannot_be_paths_are_refused(table):
    sink = await opened(table, **ARCHIVE)
    with pytest.raises(SinkError, match="cannot be part of an archive's paths"):
        await sink.write(batch(Shard("orders", "../shard"), 1))
    await sink.close()


def test_the_name_of_a_proof_is_read_back():
    text = f"AT-5.0_9.-1.2of3.{'a1' * 12}.17"
    assert str(RangeProof.parsed(text)) == text
    assert RangeProof.parsed("5.-1_9.-1") is None
