"""Archives of the file sinks: names say in which range a file is complete, and each shard has a document."""

import json
from dataclasses import dataclass, replace

import msgspec
import pytest

import recordpublisher as rp
from recordpublisher.fetcher.sink import CommitNumber, SinkContext
from recordpublisher.plugins.sinks.archived_shards import ShardDocument
from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink
from recordpublisher.plugins.sinks.files.parquet_sink import ParquetSink
from recordpublisher.plugins.stores.folder_store import FolderStore
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import HashRange, Shard

from fakes.batches import batch
from fakes.commits.committing_sink import Start, started

SHARD = Shard("orders", "shardId-0", parents=("shardId-9",), hash_range=HashRange(0, 255))
STATE = {"version": 2, "generation": 1, "shards": {}}
HORIZON = StartingPosition.trim_horizon()


@dataclass
class Order:
    data: bytes


@pytest.fixture(params=[JsonlSink, ParquetSink])
def kind(request):
    return request.param


def test_a_document_that_is_published_late_does_not_move_the_time_at_which_a_shard_was_open_back():  # S5
    """A sealed worker's commit is published by the next one, which has listed the shard since."""
    stored = ShardDocument("orders", "shardId-0", open_ms=2_000)
    assert [stored.united(msgspec.structs.replace(stored, open_ms=each)).open_ms for each in (1_000, None, 3_000)] == [
        2_000,
        2_000,
        3_000,
    ]


def sink_in(folder, kind, **more):
    name = kind.__name__.removesuffix("Sink").lower()
    return kind(rp.Properties({f"flink.sink.{name}.path": str(folder), "flink.sink.archive": "true", **more}))


def ranges(folder):
    """The names of the files that readers see, without their suffixes."""
    found = [file for file in folder.rglob("*_*.*") if "staged" not in file.parts and file.suffix != ".json"]
    return sorted(file.stem if file.suffix in (".jsonl", ".parquet") else f"{file.name} (empty)" for file in found)


async def document(folder, name="orders/shardId-0"):
    stored = await FolderStore(folder / "_recordpublisher" / "shards", None).get(name)
    return None if stored is None else json.loads(stored.value)


async def test_ranges_join_from_checkpoint_to_checkpoint(tmp_path, kind):
    job = await started(sink_in(tmp_path, kind))
    job.sink.shard_started(SHARD, HORIZON, follows_parents=True)
    await job.sink.write(batch(b"a", b"b"))
    await job.checkpoint(STATE)
    await job.sink.write(batch(b"c", first=7))
    await job.checkpoint(STATE)
    assert ranges(tmp_path) == ["2.-1_7.-1", "BEGIN_2.-1"]


async def test_a_first_start_begins_with_its_first_record(tmp_path, kind):
    job = await started(sink_in(tmp_path, kind))
    job.sink.shard_started(SHARD, HORIZON, follows_parents=False)
    await job.sink.write(batch(b"a", first=5))
    await job.checkpoint(STATE)
    assert ranges(tmp_path) == ["AT-5.-1_5.-1"]


async def test_a_restart_begins_after_the_position_even_inside_an_aggregate(tmp_path, kind):
    job = await started(sink_in(tmp_path, kind))
    job.sink.shard_started(SHARD, StartingPosition.after(SequenceNumber("4", 2)), follows_parents=False)
    other = replace(SHARD, shard_id="shardId-1")
    job.sink.shard_started(other, StartingPosition.after(SequenceNumber("6")), follows_parents=False)
    await job.sink.write(batch(b"a", first=5))
    await job.sink.write(batch(b"a", first=9, shard_id="shardId-1"))
    await job.checkpoint(STATE)
    assert ranges(tmp_path) == ["4.2_5.-1", "6.-1_9.-1"]


async def test_a_range_reaches_to_the_position_not_to_the_last_row(tmp_path, kind):
    """Those of a whole aggregate, and of a bad record behind the last row, are the position of the state, where a restart goes on."""
    job = await started(sink_in(tmp_path, kind))
    await job.sink.write(replace(batch(b"a"), read_position=SequenceNumber("8")))
    await job.checkpoint(STATE)
    job.sink.shard_started(SHARD, StartingPosition.after(SequenceNumber("8")), follows_parents=False)
    await job.sink.write(batch(b"b", first=9))
    await job.checkpoint(STATE)
    assert ranges(tmp_path) == ["8.-1_9.-1", "AT-1.-1_8.-1"]


async def test_an_accepted_gap_begins_a_file_of_its_own(tmp_path, kind):
    job = await started(sink_in(tmp_path, kind))
    job.sink.shard_started(SHARD, HORIZON, follows_parents=True)
    await job.sink.write(batch(b"a"))
    job.sink.shard_started(SHARD, HORIZON, follows_parents=False)
    await job.sink.write(batch(b"b", first=9))
    await job.checkpoint(STATE)
    assert ranges(tmp_path) == ["AT-9.-1_9.-1", "BEGIN_1.-1"]


async def test_a_reader_that_goes_on_where_rows_wait_does_not_begin_a_file(tmp_path, kind):
    job = await started(sink_in(tmp_path, kind))
    job.sink.shard_started(SHARD, HORIZON, follows_parents=True)
    await job.sink.write(batch(b"a"))
    job.sink.shard_started(SHARD, StartingPosition.after(SequenceNumber("1")), follows_parents=False)
    await job.sink.write(batch(b"b", first=2))
    await job.checkpoint(STATE)
    assert ranges(tmp_path) == ["BEGIN_2.-1"]


async def test_a_shard_that_another_process_reads_forgets_its_range(tmp_path, kind):
    job = await started(sink_in(tmp_path, kind))
    job.sink.shard_started(SHARD, HORIZON, follows_parents=True)
    await job.sink.write(batch(b"a"))
    job.sink.revoked([SHARD.key])
    job.sink.shard_started(SHARD, HORIZON, follows_parents=True)
    await job.sink.write(batch(b"a"))
    await job.checkpoint(STATE)
    assert ranges(tmp_path) == ["BEGIN_1.-1"]


async def test_a_file_without_records_has_the_range_of_rejected_ones(tmp_path):
    class RejectsFirst(JsonlSink):
        def file_writers(self, contents, rejected):
            is_first = contents[0].sequence_numbers[0] == "1"
            return {} if is_first else super().file_writers(contents, rejected)

    job = await started(RejectsFirst({"flink.sink.jsonl.path": str(tmp_path), "flink.sink.archive": "true"}))
    job.sink.shard_started(SHARD, HORIZON, follows_parents=True)
    await job.sink.write(batch(b"a"))
    await job.checkpoint(STATE)
    assert ranges(tmp_path) == ["BEGIN_1.-1 (empty)"]
    await job.sink.write(batch(b"b", first=2))
    await job.checkpoint(STATE)
    assert ranges(tmp_path) == ["1.-1_2.-1", "BEGIN_1.-1 (empty)"]
    job.sink.shard_ended(SHARD, [])
    await job.checkpoint(STATE)
    assert (await document(tmp_path))["end"] == {"through": "2.-1"}


@pytest.mark.parametrize("rows_first", [True, False])
async def test_records_that_the_job_passed_are_in_the_range_of_the_file(tmp_path, kind, rows_first):
    """A restart begins its range behind them, so a file must reach there, even if it has no rows."""
    job = await started(sink_in(tmp_path, kind))
    job.sink.shard_started(SHARD, HORIZON, follows_parents=True)
    await job.sink.write(batch(b"a"))
    if not rows_first:
        await job.checkpoint(STATE)
    job.sink.shard_passed(SHARD, SequenceNumber("5"))
    job.sink.shard_passed(SHARD, SequenceNumber("6", 2))
    await job.checkpoint(STATE)
    job.sink.shard_started(SHARD, StartingPosition.after(SequenceNumber("6", 2)), follows_parents=False)
    await job.sink.write(batch(b"b", first=9))
    await job.checkpoint(STATE)
    assert ranges(tmp_path) == sorted(
        ["6.2_9.-1", *(["BEGIN_6.2"] if rows_first else ["1.-1_6.2 (empty)", "BEGIN_1.-1"])]
    )


async def test_a_position_that_was_passed_before_the_first_record_begins_its_range(tmp_path, kind):
    job = await started(sink_in(tmp_path, kind))
    job.sink.shard_started(SHARD, HORIZON, follows_parents=False)
    job.sink.shard_passed(SHARD, SequenceNumber("5"))
    await job.sink.write(batch(b"b", first=9))
    await job.checkpoint(STATE)
    assert ranges(tmp_path) == ["5.-1_9.-1"]


async def test_parts_of_a_range_in_partitions_say_how_many_there_are(tmp_path):
    job = await started(sink_in(tmp_path, ParquetSink, **{"flink.sink.partitions": "dt={eventTime:%Y-%m-%d}"}))
    await job.sink.write(replace(batch(b"a", b"b"), event_times=[1_700_000_000_000, 1_800_000_000_000]))
    await job.checkpoint(STATE)
    assert ranges(tmp_path) == ["AT-1.-1_2.-1.1of2", "AT-1.-1_2.-1.2of2"]


async def test_the_document_of_a_listed_shard_without_records(tmp_path, kind):
    job = await started(sink_in(tmp_path, kind))
    job.sink.shard_listed(SHARD)
    await job.checkpoint(STATE)
    assert await document(tmp_path) == {
        "stream": "orders",
        "id": "shardId-0",
        "parents": ["shardId-9"],
        "range": "0-ff",
    }


async def test_a_document_has_a_time_at_which_its_shard_was_open(tmp_path, kind):
    job = await started(sink_in(tmp_path, kind))
    job.sink.shard_listed(SHARD)
    await job.checkpoint(STATE)
    job.sink.shard_listed(SHARD, 1_700_000_000_000)
    await job.checkpoint(STATE)
    assert (await document(tmp_path))["openMs"] == 1_700_000_000_000
    job.sink.shard_listed(SHARD)  # by a later start, which finds it closed
    await job.checkpoint(STATE)
    assert (await document(tmp_path))["openMs"] == 1_700_000_000_000


async def test_a_shard_that_ends_before_the_first_checkpoint_has_the_time_at_which_it_was_open(tmp_path, kind):
    """Without this time the missing first records of its children do not count as lost."""
    job = await started(sink_in(tmp_path, kind))
    job.sink.shard_listed(SHARD, 1_700_000_000_000)
    job.sink.shard_started(SHARD, HORIZON, follows_parents=True)
    await job.sink.write(batch(b"a"))
    job.sink.shard_ended(SHARD, [Shard("orders", "shardId-1")])
    await job.checkpoint(STATE)
    stored = await document(tmp_path)
    assert (stored["openMs"], stored["end"]["through"]) == (1_700_000_000_000, "1.-1")


async def test_a_document_whose_commit_failed_is_stored_by_the_next_life_of_the_process(tmp_path, kind):
    """A process of a group joins again as a new worker, and its listing does not show the shard as new again."""
    job = await started(sink_in(tmp_path, kind))
    job.sink.shard_listed(SHARD)
    job.sink.shard_started(SHARD, HORIZON, follows_parents=True)
    await job.sink.write(batch(b"a"))
    assert await job.sink.stage(CommitNumber("job/worker", 7)) is not None
    job.sink.shard_ended(SHARD, [])
    assert await job.sink.stage(CommitNumber("job/worker", 8)) is not None
    await job.sink.begin(job.life)
    job.sink.shard_started(SHARD, HORIZON, follows_parents=True)
    await job.sink.write(batch(b"a"))
    await job.checkpoint(STATE)
    stored = await document(tmp_path)
    assert (stored["parents"], stored.get("end"), ranges(tmp_path)) == (["shardId-9"], None, ["BEGIN_1.-1"])


async def test_the_end_and_the_children_of_a_shard_are_in_its_document(tmp_path, kind):
    job = await started(sink_in(tmp_path, kind))
    job.sink.shard_listed(SHARD)
    job.sink.shard_started(SHARD, HORIZON, follows_parents=True)
    await job.sink.write(batch(b"a", b"b"))
    await job.checkpoint(STATE)
    job.sink.shard_ended(SHARD, [Shard("orders", "shardId-1")])
    await job.checkpoint(STATE)
    assert (await document(tmp_path))["end"] == {"through": "2.-1", "children": ["shardId-1"]}
    job.sink.shard_listed(replace(SHARD, parents=()))  # as in a later listing, which has dropped the parent
    await job.checkpoint(STATE)
    assert (await document(tmp_path))["parents"] == ["shardId-9"]
    assert (await document(tmp_path))["end"]["through"] == "2.-1"


async def test_an_end_that_was_committed_and_not_published_is_stored_by_the_next_start(tmp_path, kind, monkeypatch):
    job = await started(sink_in(tmp_path, kind))
    job.sink.shard_started(SHARD, HORIZON, follows_parents=True)
    await job.sink.write(batch(b"a"))
    job.sink.shard_ended(SHARD, [])

    async def killed(staged):
        raise KeyboardInterrupt

    monkeypatch.setattr(job.sink, "publish", killed)
    with pytest.raises(KeyboardInterrupt):
        await job.checkpoint(STATE)
    assert await document(tmp_path) is None
    await Start(sink_in(tmp_path, kind)).open()
    assert (await document(tmp_path))["end"] == {"through": "1.-1"}
    assert ranges(tmp_path) == ["BEGIN_1.-1"]


async def test_what_an_archive_refuses(tmp_path):
    with pytest.raises(ConfigurationError, match="an archive has payloads as they were received"):
        sink_in(tmp_path, ParquetSink, **{"flink.deserializer.compression": "GZIP"})
    with pytest.raises(ConfigurationError, match="lack the column partitionKey, which an archive needs"):
        sink_in(tmp_path, ParquetSink, **{"flink.sink.partitions": "partitionKey={partitionKey}"})
    with pytest.raises(ConfigurationError, match=r"flink\.sink\.parquet\.columns=RECORD"):
        await started(sink_in(tmp_path, ParquetSink), SinkContext(value_type=Order))
    await started(sink_in(tmp_path, ParquetSink), SinkContext(value_type=str))  # has no fields, so the payload stays
    with pytest.raises(ConfigurationError, match="'value' instead of 'data'"):
        await started(sink_in(tmp_path, JsonlSink), SinkContext(value_type=dict))
    job = await started(sink_in(tmp_path, JsonlSink))
    with pytest.raises(ConfigurationError, match="'value' instead of 'data'"):
        await job.sink.write(replace(batch(b"1"), decoded=[1]))


def test_a_job_whose_sink_writes_no_archive_is_refused():
    with pytest.raises(
        ConfigurationError, match="MemorySink writes no archive; take the sink jsonl, parquet, delta or iceberg"
    ):
        rp.DataFetcher("orders", {"flink.sink.archive": "true", "aws.region": "us-east-1"}, sink=rp.MemorySink())
