"""The file sinks, for both formats: complete files, with each record in exactly one, after any interruption (S6, S7)."""

import json
import os
import re
import shutil
import weakref
from dataclasses import dataclass, replace

import msgspec
import pyarrow.parquet as pq
import pydantic
import pytest

import recordpublisher as rp
from recordpublisher.fetcher.sink import CommitNumber
from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink
from recordpublisher.plugins.sinks.files.parquet_sink import ParquetSink
from recordpublisher.plugins.sinks.files.sink import _NAME, _path_part
from recordpublisher.plugins.sinks.files.staged_files import StagedFiles

from fakes.batches import batch
from fakes.commits.committing_sink import Start, snapshot_at, started


def state(position):
    return snapshot_at(position)


class Jsonl:
    sink = JsonlSink

    @staticmethod
    def read(path):
        return [json.loads(line) for line in path.read_text().splitlines()]

    @staticmethod
    def data(row):
        return row["data"].encode()


class Parquet:
    sink = ParquetSink

    @staticmethod
    def read(path):
        return pq.read_table(path).to_pylist()

    @staticmethod
    def data(row):
        return row["data"]


@pytest.fixture(params=[Jsonl, Parquet])
def kind(request):
    return request.param


def sink_in(folder, kind, **more):
    name = kind.sink.__name__.removesuffix("Sink").lower()
    return kind.sink(rp.Properties({f"flink.sink.{name}.path": str(folder), **more}))


def visible(folder):
    """The files that readers see, without hidden ones."""
    paths = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(str(path) for path in paths if not any(part.startswith(".") for part in path.parts))


def staged(folder):
    """The hidden files that wait for their entry, or to be renamed."""
    return [file for file in (folder / ".recordpublisher" / "staged").rglob("*") if file.is_file()]


def all_data(folder, kind):
    return [kind.data(row) for name in visible(folder) for row in kind.read(folder / name)]


async def test_a_file_for_each_shard_and_checkpoint_named_by_its_range(tmp_path, kind):
    job = await started(sink_in(tmp_path, kind))
    await job.sink.write(batch(b"a", b"b"))
    await job.sink.write(batch(b"c", shard_id="shardId-1"))
    assert visible(tmp_path) == []

    await job.checkpoint(state(2))

    ending = kind.sink.suffix
    assert visible(tmp_path) == [f"orders/shardId-0/1.-1-2.-1{ending}", f"orders/shardId-1/1.-1-1.-1{ending}"]
    assert all_data(tmp_path, kind) == [b"a", b"b", b"c"]
    assert await Start(sink_in(tmp_path, kind)).open() == [state(2)]


async def test_rows_of_other_positions_replace_no_file(tmp_path, kind):
    for value in (b"a", b"b"):
        job = await started(sink_in(tmp_path, kind))
        await job.sink.write(batch(value))
        await job.checkpoint(state(1))
        await job.checkpoint(state(1))
        shutil.rmtree(tmp_path / ".recordpublisher")

    assert sorted(all_data(tmp_path, kind)) == [b"a", b"b"]


async def test_the_same_rows_read_again_are_one_file(tmp_path, kind):
    for _ in range(2):
        job = await started(sink_in(tmp_path, kind))
        await job.sink.write(batch(b"a"))
        await job.checkpoint(state(1))
        shutil.rmtree(tmp_path / ".recordpublisher")

    assert all_data(tmp_path, kind) == [b"a"]


async def test_a_file_that_was_named_before_a_crash_is_named_once(tmp_path, kind, monkeypatch):
    dying = await started(sink_in(tmp_path, kind))
    await dying.sink.write(batch(b"a"))
    with monkeypatch.context() as patched:
        patched.setattr("recordpublisher.plugins.sinks.files.staged_files.sync", die_when_named(tmp_path))
        with pytest.raises(MemoryError):
            await dying.checkpoint(state(1))
    assert (len(visible(tmp_path)), len(staged(tmp_path))) == (1, 1)

    await started(sink_in(tmp_path, kind))

    assert (all_data(tmp_path, kind), staged(tmp_path)) == ([b"a"], [])


def die_when_named(folder):
    def sync(path):
        if path == folder / "orders/shardId-0":
            raise MemoryError("dead")

    return sync


async def test_uncommitted_files_are_deleted_after_a_crash(tmp_path, kind):  # S6
    dying = await started(sink_in(tmp_path, kind))
    await dying.sink.write(batch(b"a"))
    await dying.checkpoint(state(1))
    await dying.sink.write(batch(b"never"))
    await dying.sink.stage(CommitNumber("job/0", 7))
    assert len(staged(tmp_path)) == 1

    assert await Start(sink_in(tmp_path, kind)).open() == [state(1)]
    assert all_data(tmp_path, kind) == [b"a"]
    assert staged(tmp_path) == []


@pytest.mark.parametrize("renamed", [0, 1, 2])
async def test_a_crash_after_the_commit_is_finished_by_the_next_start(tmp_path, kind, monkeypatch, renamed):  # S6
    """The entry names the files: some, all or none of them may have been renamed when the process died."""
    dying = await started(sink_in(tmp_path, kind))
    await dying.sink.write(batch(b"a"))
    await dying.sink.write(batch(b"b", shard_id="shardId-1"))

    publish = StagedFiles._publish

    def die(staged_files, files):
        publish(staged_files, list(files)[:renamed])
        raise MemoryError("dead")

    monkeypatch.setattr(StagedFiles, "_publish", die)
    with pytest.raises(MemoryError):
        await dying.checkpoint(state(1))
    monkeypatch.undo()
    assert len(visible(tmp_path)) == renamed

    assert await Start(sink_in(tmp_path, kind)).open() == [state(1)]
    assert all_data(tmp_path, kind) == [b"a", b"b"]


async def test_a_commit_counts_its_files_their_bytes_and_what_was_written_before_it(tmp_path, kind):
    job = await started(sink_in(tmp_path, kind))
    await job.sink.write(batch(b"a"))
    await job.sink.write(batch(b"b", shard_id="shardId-1"))
    await job.alone.commit(state(1), 2)
    counts = job.alone.counts
    size = sum(file.stat().st_size for file in staged(tmp_path))
    assert (counts.files, counts.size, counts.records, counts.undecided) == (2, size, 2, None)

    await job.checkpoint(state(1))
    assert (counts.files, counts.size) == (2, size)


async def test_a_staged_file_that_is_gone_before_it_was_ever_published_is_named(tmp_path, kind):
    job = await started(sink_in(tmp_path, kind))
    await job.sink.write(batch(b"a"))
    await job.alone.commit(state(1))
    (hidden,) = staged(tmp_path)
    hidden.unlink()
    with pytest.raises(rp.StateError, match=r"staged/\w+/\d+-0 .*shardId-0.* records are lost"):
        await job.alone.publish()


async def test_files_that_a_user_moves_away_break_no_job_and_no_start(tmp_path, kind, caplog):
    job = await started(sink_in(tmp_path, kind))
    for number in (1, 2):
        await job.sink.write(batch(b"a"))
        await job.checkpoint(state(number))
        for name in visible(tmp_path):
            (tmp_path / name).unlink()

    assert await Start(sink_in(tmp_path, kind)).open() == [state(2)]
    assert "are not there: they were probably published before" in caplog.text
    await job.alone.publish()


async def test_what_can_never_get_its_name_is_an_error_that_says_how_to_continue(tmp_path, kind):
    sink = sink_in(tmp_path, kind)
    await sink.open(rp.SinkContext())
    await sink.write(batch(b"a"))
    committed = await sink.stage(CommitNumber("job/0", 1))
    ((hidden, name),) = committed.content["files"]
    named = replace(committed, content={"files": [(hidden, f"key={'k' * 300}/{name}")]})

    for _ in range(2):
        with pytest.raises(rp.StateError, match=rf"File name too long.*{tmp_path / hidden} is committed.*move it away"):
            await sink.publish([named])

    (tmp_path / hidden).rename(tmp_path / "kept")
    await sink.publish([named])
    assert visible(tmp_path) == ["kept"]


async def test_a_start_that_was_replaced_before_it_published_is_fenced_also_when_its_files_were_moved(tmp_path, kind):
    sleeper = await started(sink_in(tmp_path, kind))
    await sleeper.sink.write(batch(b"a"))
    await sleeper.alone.commit(state(1))
    await started(sink_in(tmp_path, kind))
    for name in visible(tmp_path):
        (tmp_path / name).unlink()

    with pytest.raises(rp.FencedError, match="This process stops"):
        await sleeper.alone.publish()


async def test_a_start_that_was_replaced_adds_no_file(tmp_path, kind):  # S6
    sleeper = await started(sink_in(tmp_path, kind))
    await sleeper.sink.write(batch(b"old"))
    successor = await started(sink_in(tmp_path, kind))

    with pytest.raises(rp.FencedError, match="This process stops"):
        await sleeper.checkpoint(state(1))
    await successor.sink.write(batch(b"new"))
    await successor.checkpoint(state(1))

    assert all_data(tmp_path, kind) == [b"new"]
    with pytest.raises(rp.FencedError):
        await sleeper.checkpoint(state(1))


async def test_positions_of_an_earlier_version_are_refused_with_the_way_to_take_them_along(tmp_path, kind):
    (tmp_path / ".recordpublisher" / "workers" / "worker-0.versions").mkdir(parents=True)
    with pytest.raises(rp.StateError, match=r"workers has the positions .* positions import JOB --from"):
        await sink_in(tmp_path, kind).open(rp.SinkContext())


class Struct(msgspec.Struct):
    n: int


class Model(pydantic.BaseModel):
    n: int


@dataclass
class WithDefault:
    n: int = 1


DECODED = msgspec.json.decode(b"{}", type=WithDefault)


@pytest.mark.parametrize("given", [{"n": 1}, Struct(1), Model(n=1), DECODED])
async def test_values_are_written_as_json(tmp_path, kind, given):
    sink = sink_in(tmp_path, kind)
    await sink.open(rp.SinkContext())
    await sink.write(batch(b"x").with_columns(values=[given], event_times=[5]))
    await sink.flush()

    (row,) = kind.read(tmp_path / visible(tmp_path)[0])
    value = row["value"]
    assert (json.loads(value) if isinstance(value, str) else value) == {"n": 1}


@pytest.mark.parametrize("bad", [object(), {"x": float("nan")}, [float("inf"), None]])
async def test_a_value_that_json_cannot_represent_is_rejected(tmp_path, kind, bad):  # S7
    given_away = []

    async def reject(record, reason):
        given_away.append((record.data, reason))

    sink = sink_in(tmp_path, kind)
    await sink.open(rp.SinkContext(reject=reject))
    await sink.write(batch(b"a", b"b", b"c").with_columns(values=[1, bad, 3]))
    await sink.flush()

    assert [data for data, _ in given_away] == [[b"b"]]
    rows = kind.read(tmp_path / visible(tmp_path)[0])
    assert [str(row["value"]) for row in rows] == ["1", "3"]


async def test_a_folder_that_cannot_be_written_is_a_configuration_error(tmp_path, kind):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(rp.ConfigurationError, match="a folder that can be written"):
        await sink_in(tmp_path / "file", kind).open(rp.SinkContext())


async def test_a_place_that_is_no_folder_is_refused(kind):
    with pytest.raises(rp.ConfigurationError, match="it looks like a URI"):
        sink_in("hdfs://host/orders", kind)


async def test_a_full_disk_is_an_error_and_nothing_is_committed(tmp_path, kind, monkeypatch):
    sink = sink_in(tmp_path, kind)
    await sink.open(rp.SinkContext())
    await sink.write(batch(b"a"))

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(rp.StateError, match="No space left"):
        await sink.flush()
    monkeypatch.undo()
    assert visible(tmp_path) == []

    await sink.flush()
    assert all_data(tmp_path, kind) == [b"a"]


async def test_a_full_buffer_requests_a_checkpoint(tmp_path, kind):
    asked = []
    sink = sink_in(tmp_path, kind, **{"flink.sink.buffer.bytes": 100})
    await sink.open(rp.SinkContext(request_checkpoint=lambda: asked.append(True)))
    await sink.write(batch(b"x" * 100))
    assert asked


async def test_the_job_waits_while_twice_as_much_waits(tmp_path, kind):
    resumed = []
    sink = sink_in(tmp_path, kind, **{"flink.sink.buffer.bytes": 1_000})
    await sink.open(rp.SinkContext(resume_writing=lambda: resumed.append(sink.has_room())))
    await sink.write(batch(b"x" * 1_000))
    assert sink.has_room()
    await sink.write(batch(b"y" * 1_000))
    assert not sink.has_room()
    resumed.clear()

    await sink.flush()

    assert (sink.has_room(), resumed) == (True, [True])


def test_folders_by_time_are_refused_where_there_are_none(tmp_path):
    with pytest.raises(rp.ConfigurationError, match="leave it out, or use parquet"):
        sink_in(tmp_path, Jsonl, **{"flink.sink.partitions": "dt={eventTime:%Y}"})


async def test_parquet_keeps_columns_and_releases_the_records(tmp_path):  # S6
    sink = sink_in(tmp_path, Parquet)
    await sink.open(rp.SinkContext())
    written = batch(b"1", b"2")
    held = weakref.ref(written)
    await sink.write(written)
    del written
    assert held() is None
    await sink.flush()
    assert len(all_data(tmp_path, Parquet)) == 2


async def test_only_columns_that_repeat_have_a_dictionary(tmp_path):
    sink = sink_in(tmp_path, Parquet)
    await sink.open(rp.SinkContext())
    await sink.write(batch(b"1", b"2"))
    await sink.flush()
    (file,) = tmp_path.rglob("*.parquet")

    group = pq.ParquetFile(file).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    with_dictionary = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert with_dictionary == {"stream", "shardId", "partitionKey"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"shard_id": "../../elsewhere"},
        {"shard_id": ".."},
        {"shard_id": "/absolute"},
        {"shard_id": "shard\n"},
        {"stream": ".."},
        {"sequence": "../1"},
        {"sequence": "1\n"},
        {"sequence": "1" * 111},
    ],
    ids=repr,
)
async def test_names_from_the_source_never_become_a_path_out_of_the_folder(kind, tmp_path, wrong):
    sink = sink_in(tmp_path / "out", kind)
    await sink.open(rp.SinkContext())
    named = dict(wrong)
    sequence = named.pop("sequence", "1")
    made = batch(b"a", **named)
    made.records[0].sequence_number = sequence
    await sink.write(made)
    await sink.flush()
    await sink.close()

    (file,) = visible(tmp_path / "out")
    assert len(file.split("/")) == 3
    assert len(os.path.basename(file)) < 256
    assert visible(tmp_path) == [f"out/{file}"]


async def test_an_archive_takes_no_name_that_cannot_be_in_a_path(kind, tmp_path):
    sink = sink_in(tmp_path / "out", kind, **{"flink.sink.archive": "true"})
    await sink.open(rp.SinkContext())
    with pytest.raises(rp.SinkError, match="cannot be part of"):
        await sink.write(batch(b"a", shard_id="eu west"))
    await sink.close()


def test_different_names_stay_different_in_paths():
    names = ["..", ".", "a/b", "a%2Fb", "a b", "a" * 200, "a" * 201, "ü" * 40, "\ud800", "a"]
    parts = [_path_part(name, _NAME) for name in names]
    assert len(set(parts)) == len(names)
    assert all(re.fullmatch(r"(?!\.{1,2}$)[A-Za-z0-9_.%~-]{1,128}", part) for part in parts)
