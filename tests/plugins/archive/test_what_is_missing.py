"""Every failure of a read from an archive has a text that names the records on both sides, and what helps."""

import shutil
from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recordpublisher as rp
from recordpublisher.plugins.archive.factory import ArchiveFactory
from recordpublisher.plugins.sinks.archived_shards import SHARDS, ShardDocument, store_documents
from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink
from recordpublisher.plugins.sinks.files.parquet_sink import ParquetSink
from recordpublisher.plugins.stores.folder_store import FolderStore
from recordpublisher.publishers.base import RecordPublisherFactory, RunResult
from recordpublisher.publishers.errors import ConfigurationError, DataLossError, KinesisError, StateError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import OldestRecord, Shard

from fakes.archives import ARRIVAL, PAYLOADS, SHARD, records, write_archive

HORIZON = StartingPosition.trim_horizon()
NOT_ASKED = (
    "and the stream was not asked for them because of flink.archive.live=NONE: with POLLING the job reads them from the stream, "
    "if it still has them"
)
NOW_MS = int(ARRIVAL * 1000) + 30 * 24 * 3_600_000


class LiveStream(RecordPublisherFactory):
    """Lists shards, and has records from an index of the payloads on."""

    def __init__(self, listed=(SHARD,), oldest=None):
        self.listed, self.oldest, self.created = list(listed), oldest, []

    async def create(self, shard, starting_position, metrics):
        self.created.append(starting_position)
        stream = self

        class Live(rp.RecordPublisher):
            async def run(self, consumer):
                rows = [] if stream.oldest is None else records(stream.oldest, len(PAYLOADS))
                if rows:
                    last = SequenceNumber(rows[-1].sequence_number)
                    await consumer(RecordBatch(shard, rows, 0, last, raw_count=len(rows), raw_bytes=1))
                return RunResult.COMPLETE

        return Live()

    async def list_shards(self, stream):
        return self.listed

    async def oldest_record(self, shard):
        if self.oldest is None:
            return OldestRecord()
        first = records(self.oldest, len(PAYLOADS))[0]
        return OldestRecord(first.sequence_number, int(first.arrival * 1000))

    async def oldest_retained_ms(self, stream):
        return NOW_MS - 24 * 3_600_000


class Clock:
    def now_ms(self):
        return NOW_MS

    def monotonic(self):
        return 1.0

    boottime = monotonic


def factory_of(folder, live=None, **more):
    given = {"flink.archive.uri": str(folder), "flink.archive.live": "NONE" if live is None else "POLLING", **more}
    return ArchiveFactory(rp.Properties(given), live=live, lister=live, clock=Clock())


async def read(factory, shard=SHARD, start=HORIZON):
    batches = []

    async def consumer(batch):
        batches.append(batch)
        return batch.read_position

    metrics = ShardMetrics()
    try:
        publisher = await factory.create(shard, start, metrics)
        while await publisher.run(consumer) is not RunResult.COMPLETE:
            pass
    finally:
        await factory.close()
    return batches, metrics


def payloads(batches):
    return [payload for batch in batches for payload in batch.data]


def file_of(folder, begin):
    return next(file for file in folder.glob("orders/*/*") if file.name.startswith(begin))


async def test_a_file_that_is_missing_in_the_middle_is_named_by_the_records_on_its_sides(tmp_path):
    await write_archive(tmp_path, JsonlSink, (5, 8, 14))
    file_of(tmp_path, "104.-1").unlink()
    hole = "records of orders/shardId-0 after 104 (arrived 2026-09-21T16:13:20.000+00:00) up to 106 are in no file of"
    with pytest.raises(DataLossError) as raised:
        await read(factory_of(tmp_path))
    continues = "Set flink.state.dataloss=CONTINUE to continue without them"
    assert str(raised.value) == f"{hole} {tmp_path}, {NOT_ASKED}. {continues}"
    with pytest.raises(DataLossError) as raised:
        await read(factory_of(tmp_path, LiveStream(listed=())))
    assert str(raised.value) == f"{hole} {tmp_path}, and the stream no longer has the shard. {continues}"
    live = LiveStream(oldest=10)
    with pytest.raises(DataLossError) as raised:
        await read(factory_of(tmp_path, live))
    first = "the stream has nothing before 110 (arrived 2026-09-21T19:13:20.000+00:00)"
    assert str(raised.value) == f"{hole} {tmp_path}, and {first}. {continues}"
    assert live.created == []


async def test_the_stream_fills_a_hole_that_it_still_has(tmp_path):
    await write_archive(tmp_path, JsonlSink, (5, 8, 14))
    file_of(tmp_path, "104.-1").unlink()
    live = LiveStream(oldest=5)
    live.oldest_record = lambda shard: _answer(OldestRecord("100", 1))
    batches, _ = await read(factory_of(tmp_path, live))
    assert payloads(batches) == PAYLOADS
    assert live.created == [StartingPosition.after(SequenceNumber("104"))]


async def _answer(value):
    return value


async def test_an_accepted_hole_is_counted_and_marked(tmp_path):
    await write_archive(tmp_path, JsonlSink, (5, 8, 14))
    file_of(tmp_path, "104.-1").unlink()
    batches, metrics = await read(factory_of(tmp_path, **{"flink.state.dataloss": "CONTINUE"}))
    assert payloads(batches) == PAYLOADS[:5] + PAYLOADS[8:]
    assert metrics.retention_gaps == 1
    assert [batch.after_gap for batch in batches if len(batch)] == [False, True, False]


async def test_an_archive_that_ends_before_the_stream_begins(tmp_path):
    await write_archive(tmp_path, JsonlSink, (5, 8, 14), is_ended=False)
    file_of(tmp_path, "112").unlink()
    live = LiveStream(oldest=20)
    text = (
        r"the archive of orders/shardId-0 ends after 112 \(arrived 2026-\S+\), the stream begins at 120 "
        r"\(arrived 2026-\S+\): the records in between are lost"
    )
    with pytest.raises(DataLossError, match=text):
        await read(factory_of(tmp_path, live))
    batches, metrics = await read(factory_of(tmp_path, LiveStream(oldest=20), **{"flink.state.dataloss": "CONTINUE"}))
    assert payloads(batches) == PAYLOADS[:14] + PAYLOADS[20:]
    assert metrics.retention_gaps == 1
    assert batches[-1].after_gap


async def test_a_shard_that_is_gone_before_its_archived_end(tmp_path):
    await write_archive(tmp_path, JsonlSink, (5,), is_ended=False)
    text = "the archive of orders/shardId-0 ends after 123 .* without the shard's end, and the stream no longer has the shard"
    with pytest.raises(DataLossError, match=text):
        await read(factory_of(tmp_path, LiveStream(listed=())))


async def test_the_last_file_of_a_shard_that_has_ended_is_missing(tmp_path):
    children = [Shard("orders", "shardId-1", parents=("shardId-0",))]
    await write_archive(tmp_path, JsonlSink, (5, 8, 14), children=children)
    file_of(tmp_path, "112.-1").unlink()
    await copy_shard(tmp_path, "shardId-1", ("shardId-0",))
    text = f"the last records of orders/shardId-0, after 112 (arrived 2026-09-21T20:43:20.000+00:00), are in no file of {tmp_path}"
    with pytest.raises(DataLossError) as raised:
        await read(factory_of(tmp_path))
    assert str(raised.value).startswith(f"{text}, {NOT_ASKED}. Set flink.state.dataloss")
    batches, metrics = await read(factory_of(tmp_path, **{"flink.state.dataloss": "CONTINUE"}))
    assert payloads(batches) == PAYLOADS[:14]
    assert metrics.retention_gaps == 1
    assert [child.shard_id for child in batches[-1].child_shards] == ["shardId-1"]


async def test_files_that_are_published_while_the_end_is_read_are_not_missing(tmp_path):
    await write_archive(tmp_path, JsonlSink, (5, 8, 14))
    last = file_of(tmp_path, "112.-1")
    content = last.read_bytes()
    last.unlink()
    factory = factory_of(tmp_path)
    catalogue = factory._archive.catalogue
    document = catalogue.document

    def published(shard):
        last.write_bytes(content)
        return document(shard)

    catalogue.document = published
    batches, _ = await read(factory)
    assert payloads(batches) == PAYLOADS


@pytest.mark.parametrize("start", [HORIZON, StartingPosition.latest(), StartingPosition.at_timestamp(NOW_MS - 1000)])
async def test_a_shard_that_is_newer_than_the_last_listing_is_read_live(tmp_path, start):
    """A worker of a group gets it from the lease table, and a parent's last response names it, before the next listing does."""
    live = LiveStream(listed=(), oldest=20)
    factory = factory_of(tmp_path, live)
    await factory.unlisted_shards("orders", [])
    live.listed = [SHARD]
    batches, _ = await read(factory, start=start)
    assert payloads(batches) == PAYLOADS[20:]


async def test_a_child_that_nothing_knows(tmp_path):
    await write_archive(tmp_path, JsonlSink, (5,), children=[Shard("orders", "shardId-7", parents=("shardId-0",))])
    with pytest.raises(DataLossError, match="orders/shardId-0 became shardId-7, which is neither archived nor listed"):
        await read(factory_of(tmp_path))


async def test_files_of_fields_have_no_payload(tmp_path):
    await write_archive(tmp_path, ParquetSink, ())
    file = next(tmp_path.glob("orders/*/*"))
    pq.write_table(pq.read_table(file).drop(["data"]), file)
    text = f"{file} has no column 'data': written with flink.sink.parquet.columns=FIELDS; an archive needs flink.sink.archive=true"
    with pytest.raises(StateError) as raised:
        await read(factory_of(tmp_path))
    assert str(raised.value) == text


async def test_lines_of_values_have_no_payload(tmp_path):
    await write_archive(tmp_path, JsonlSink, ())
    file = next(tmp_path.glob("orders/*/*"))
    file.write_text(file.read_text().replace('"data"', '"value"'))
    with pytest.raises(StateError, match="has no column 'data'"):
        await read(factory_of(tmp_path))


async def test_row_groups_that_another_program_has_sorted_are_refused(tmp_path):
    await write_archive(tmp_path, ParquetSink, ())
    file = next(tmp_path.glob("orders/*/*"))
    table = pq.read_table(file)
    pq.write_table(pa.concat_tables([table.slice(12), table.slice(0, 12)]), file, row_group_size=12)
    with pytest.raises(StateError, match="row groups 0 and 1 overlap, so another program has sorted them"):
        await read(factory_of(tmp_path))


async def test_a_file_that_vanishes_is_listed_again(tmp_path):
    await write_archive(tmp_path, JsonlSink, (5, 8, 14))
    factory = factory_of(tmp_path)
    gone = file_of(tmp_path, "104.-1")
    other = gone.with_name(gone.name.replace(".jsonl", ".0123456789ab.jsonl"))
    shutil.copy(gone, other)

    async def consumer(batch):
        gone.unlink(missing_ok=True)
        seen.extend(batch.data)
        return batch.read_position

    seen = []
    publisher = await factory.create(SHARD, HORIZON, ShardMetrics())
    assert await publisher.run(consumer) is RunResult.COMPLETE
    assert seen == PAYLOADS
    await factory.close()


async def test_files_without_ranges_are_read_only_if_that_is_wanted(tmp_path):
    sink = JsonlSink(rp.Properties({"flink.sink.jsonl.path": str(tmp_path)}))
    await write_archive(tmp_path, JsonlSink, (5, 8, 14), sink=sink)
    with pytest.raises(
        ConfigurationError, match=r"flink\.archive\.unproven.*were written without flink\.sink\.archive"
    ):
        await factory_of(tmp_path).discover("orders")
    factory = factory_of(tmp_path, **{"flink.archive.unproven": "true"})
    assert [shard.shard_id for shard in await factory.discover("orders")] == ["shardId-0"]
    batches, _ = await read(factory)
    assert payloads(batches) == PAYLOADS


def test_what_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ConfigurationError, match=r"flink\.archive\.uri"):
        ArchiveFactory.check(rp.Properties({}), ["orders"])
    with pytest.raises(ConfigurationError, match=r"flink\.archive\.live"):
        ArchiveFactory.check(rp.Properties({"flink.archive.uri": "x", "flink.archive.live": "ARCHIVE"}), ["orders"])
    group = {"flink.archive.uri": "x", "flink.archive.live": "NONE", "flink.job.workers": "GROUP"}
    with pytest.raises(ConfigurationError) as raised:
        ArchiveFactory.check(rp.Properties(group), ["orders"])
    assert str(raised.value) == (
        "property 'flink.job.workers=GROUP' cannot be combined with 'flink.archive.live=NONE': a group never ends. Read the archive with "
        "one process, or set flink.archive.live=POLLING to continue in the stream"
    )
    with pytest.raises(ConfigurationError, match="a queue has no positions"):
        ArchiveFactory.check(rp.Properties({"flink.archive.uri": "x", "flink.archive.live": "QUEUE"}), ["orders"])
    with pytest.raises(ConfigurationError, match="a folder that a file sink has written"):
        factory_of(tmp_path / "missing")
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(ConfigurationError, match=r"it is the folder of a table\. Valid: delta:"):
        factory_of(tmp_path)


async def test_a_start_by_time_that_the_stream_still_has_reads_no_file(tmp_path):
    await write_archive(tmp_path, JsonlSink, (5,), is_ended=False)
    live = LiveStream(oldest=20)
    start = StartingPosition.at_timestamp(NOW_MS - 1000)
    batches, _ = await read(factory_of(tmp_path, live), start=start)
    assert live.created == [start]
    assert payloads(batches) == PAYLOADS[20:]


async def test_a_quiet_shard_has_lost_nothing_if_the_archiving_job_saw_its_tip(tmp_path):
    """The last record is past retention, and the first live one is new: only the position of the archiving job tells."""
    await write_archive(tmp_path, JsonlSink, (14,), is_ended=False, tip_ms=NOW_MS - 3_600_000, stop=20)
    live = LiveStream(oldest=20)
    batches, metrics = await read(factory_of(tmp_path, live))
    assert payloads(batches) == PAYLOADS
    assert metrics.retention_gaps == 0
    await write_archive(tmp_path / "other", JsonlSink, (14,), is_ended=False, tip_ms=NOW_MS - 25 * 3_600_000, stop=20)
    with pytest.raises(DataLossError, match="the records in between are lost"):
        await read(factory_of(tmp_path / "other", LiveStream(oldest=20)))


async def archive_check(folder, live=None, **more):
    factory = factory_of(folder, live, **more)
    try:
        return await factory.checks("orders")["archive"]()
    finally:
        await factory.close()


async def test_doctor_says_from_when_an_archive_can_be_read_back(tmp_path):
    await write_archive(tmp_path, JsonlSink, (5, 8, 14))
    assert (
        await archive_check(tmp_path)
        == "1 shard, 4 ranges, from 2026-09-21T14:13:20.000Z; nothing is missing between them"
    )
    gone = file_of(tmp_path, "112.-1")
    content = gone.read_bytes()
    gone.unlink()
    with pytest.raises(
        StateError,
        match=r"is incomplete: the last records of orders/shardId-0, up to its end at 123\.-1, are in no file",
    ):
        await archive_check(tmp_path)
    gone.write_bytes(content)
    file_of(tmp_path, "104.-1").unlink()
    with pytest.raises(
        StateError, match=r"is incomplete: some records of orders/shardId-0 before 106\.-1 are in no file"
    ):
        await archive_check(tmp_path)
    factory = factory_of(tmp_path)
    with pytest.raises(StateError, match="has no shard of other"):
        await factory.checks("other")["archive"]()
    await factory.close()


async def test_doctor_compares_the_end_of_the_archive_with_the_stream(tmp_path):
    """A job would end there with the same text."""
    await write_archive(tmp_path, JsonlSink, (5, 8, 14), is_ended=False)
    whole = "1 shard, 4 ranges, from 2026-09-21T14:13:20.000Z; nothing is missing between them"
    assert await archive_check(tmp_path, Reading(oldest=20)) == whole
    file_of(tmp_path, "112").unlink()
    text = (
        r"the archive of orders/shardId-0 ends after 112 \(arrived 2026-\S+\), the stream begins at 120 "
        r"\(arrived 2026-\S+\): the records in between are lost"
    )
    with pytest.raises(StateError, match=text):
        await archive_check(tmp_path, Reading(oldest=20))
    assert "nothing is missing" in await archive_check(tmp_path, Reading(oldest=12))
    with pytest.raises(
        StateError, match="ends after 112 without the shard's end, and the stream no longer has the shard"
    ):
        await archive_check(tmp_path, Reading(listed=()))


async def test_doctor_knows_that_a_quiet_shard_has_lost_nothing(tmp_path):
    await write_archive(tmp_path, JsonlSink, (14,), is_ended=False, tip_ms=NOW_MS - 3_600_000, stop=20)
    assert "nothing is missing" in await archive_check(tmp_path, Reading(oldest=20))


async def test_doctor_examines_the_archive_of_a_stream_that_cannot_be_listed(tmp_path):
    class Away(Reading):
        async def list_shards(self, stream):
            raise KinesisError("the endpoint is away")

    await write_archive(tmp_path, JsonlSink, (5, 8, 14), is_ended=False)
    words = (
        "nothing is missing between them; not compared with the stream, which cannot be listed: the endpoint is away"
    )
    assert (await archive_check(tmp_path, Away())).endswith(words)


class Reading(LiveStream):
    """Has no checks of its own."""

    def checks(self, stream):
        return {}


async def copy_shard(folder, name, parents=()):
    """Copy the files of the shard as those of another."""
    shutil.copytree(folder / "orders/shardId-0", folder / "orders" / name)
    store = FolderStore(folder / SHARDS, None)
    document = msgspec.json.decode((await store.get(SHARD.key)).value, type=ShardDocument)
    await store_documents(store, [msgspec.structs.replace(document, id=name, parents=parents)])


async def test_an_archive_without_the_oldest_file_of_one_shard_is_complete_from_later_on(tmp_path, caplog):
    await write_archive(tmp_path, JsonlSink, (5, 8, 14))
    await copy_shard(tmp_path, "shardId-1")
    next(file for file in tmp_path.glob("orders/shardId-1/*") if file.name.startswith("BEGIN")).unlink()
    assert await archive_check(tmp_path) == (
        "2 shards, 7 ranges, all from 2026-09-21T16:43:20.000Z (the first from 2026-09-21T14:13:20.000Z; older files are missing: "
        "shardId-1 from 2026-09-21T16:43:20.000Z); nothing is missing between them"
    )
    batches, _ = await read(factory_of(tmp_path))
    assert not caplog.records
    batches, _ = await read(factory_of(tmp_path), Shard("orders", "shardId-1"))
    assert payloads(batches) == PAYLOADS[5:]
    [warning] = caplog.records
    assert warning.levelname == "WARNING"
    assert warning.message.startswith(
        f"no file of {tmp_path} has the records of orders/shardId-1 up to 104, so the read"
    )
    caplog.clear()
    early = StartingPosition.at_timestamp(int(ARRIVAL * 1000))
    await read(factory_of(tmp_path), Shard("orders", "shardId-1"), start=early)
    assert len(caplog.records) == 1
    caplog.clear()
    await read(
        factory_of(tmp_path),
        Shard("orders", "shardId-1"),
        start=StartingPosition.at_timestamp(early.timestamp_ms + 1800 * 5500),
    )
    assert not caplog.records


async def test_the_files_of_a_parent_were_deleted_and_the_first_files_of_its_child(tmp_path, caplog):
    """So it is in a copy of the youngest files. The parent's document stays."""
    await write_archive(tmp_path, JsonlSink, (5, 8, 14))
    await copy_shard(tmp_path, "shardId-1", ("shardId-0",))
    shutil.rmtree(tmp_path / "orders/shardId-0")
    next(file for file in tmp_path.glob("orders/shardId-1/*") if file.name.startswith("BEGIN")).unlink()
    assert (await archive_check(tmp_path)).endswith("from 2026-09-21T16:43:20.000Z; nothing is missing between them")
    child = Shard("orders", "shardId-1", parents=("shardId-0",))
    for live in (None, LiveStream(listed=(child,))):
        caplog.clear()
        batches, _ = await read(factory_of(tmp_path, live), child)
        assert payloads(batches) == PAYLOADS[5:]
        [warning] = caplog.records
        assert (
            "has the records of orders/shardId-1 up to 104, so the read of the shard begins after that"
            in warning.message
        )
    assert (await read(factory_of(tmp_path)))[0][0].child_shards == (replace(child, closed=True),)


async def test_doctor_misses_the_first_file_of_a_child_as_a_job_does(tmp_path):
    await write_archive(tmp_path, JsonlSink, (5, 8, 14))
    await copy_shard(tmp_path, "shardId-1", ("shardId-0",))
    await archive_check(tmp_path)
    next(file for file in tmp_path.glob("orders/shardId-1/*") if file.name.startswith("BEGIN")).unlink()
    with pytest.raises(StateError, match=r"some records of orders/shardId-1 before 104\.-1 are in no file"):
        await archive_check(tmp_path)
    with pytest.raises(DataLossError, match="up to 104 are in no file"):
        await read(factory_of(tmp_path), Shard("orders", "shardId-1", parents=("shardId-0",)))
