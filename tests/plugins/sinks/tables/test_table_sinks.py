"""Delta and Iceberg alike: what is staged is durable and not visible, what is published is there once (S6)."""

import asyncio
import json
import os
import threading

import pytest
from deltalake import DeltaTable

import recordpublisher as rp
from recordpublisher.fetcher.sink import Staged
from recordpublisher.plugins.sinks.tables.sink import TableSink

from .lake_tables import Delta, Iceberg, data_files, marks, number, opened, payloads
from fakes.batches import batch
from fakes.commits.committing_sink import Start, snapshot_at
from fakes.memory_store import MemoryStore


@pytest.fixture(params=[Delta, Iceberg])
def kind(request, tmp_path):
    return request.param(tmp_path)


async def staged(sink, n, *data, **more):
    await sink.write(batch(*data, **more))
    return await sink.stage(number(n))


async def test_what_is_staged_is_durable_and_not_visible_until_it_is_published(kind):
    sink = await opened(kind)
    one = await staged(sink, 1, b"a", b"b")

    assert payloads(kind) == []
    assert data_files(kind) == ["data/job.0.1/1/1.parquet"]
    await sink.publish([one])

    assert payloads(kind) == [b"a", b"b"]
    assert marks(kind) == []
    await sink.close()


async def test_nothing_written_is_nothing_staged(kind):
    sink = await opened(kind)
    assert await sink.stage(number(1)) is None
    await sink.write(batch())
    assert await sink.stage(number(2)) is None
    await sink.close()


async def test_a_life_with_a_name_that_has_files_writes_nothing(kind):
    first = await opened(kind)
    await first.publish([await staged(first, 1, b"a")])
    second = await opened(kind)
    with pytest.raises(rp.SinkError, match=r"data/job.0.1 has files of another process"):
        await staged(second, 1, b"b")
    assert payloads(kind) == [b"a"]


async def test_a_local_file_that_is_there_is_not_replaced(kind):
    sink = await opened(kind)
    sink._table.folder().create("data/x.parquet").close()
    with pytest.raises(FileExistsError):
        sink._table.folder().create("data/x.parquet")
    await sink.close()


async def test_writers_that_the_table_remembers_are_named(kind):
    sink = await opened(kind)
    assert await sink.writers() == []
    await sink.publish([await staged(sink, 1, b"a")])
    assert await sink.writers() == ["job/0"]
    await sink.close()


@pytest.mark.parametrize("job", ["j", "other"])
async def test_positions_that_were_deleted_overwrite_no_rows_and_the_new_start_is_told(kind, tmp_path, caplog, job):
    for name, value in (("j", b"a"), (job, b"b")):
        sink = kind.sink()
        sink.entries = lambda: None
        start = Start(sink, store=MemoryStore(), job=name)
        await start.open()
        await start.sink.write(batch(value))
        await start.checkpoint(snapshot_at(1))
        await start.sink.close()

    assert payloads(kind) == [b"a", b"b"]
    (told,) = [
        each.getMessage() for each in caplog.records if "those of the rows are in another place" in each.getMessage()
    ]
    assert f"{start.sink.destination()} has rows that were written by j/" in told


async def test_an_entry_is_published_once_whoever_publishes_it_and_how_often(kind):
    sink, other = await opened(kind), await opened(kind, "job.0.2")
    one, two = await staged(sink, 1, b"a"), await staged(sink, 2, b"b")
    stored = [Staged(number(each.number.n), json.loads(json.dumps(each.content))) for each in (one, two)]

    await sink.publish([one])
    await other.publish(stored)
    await sink.publish([one, two])

    assert payloads(kind) == [b"a", b"b"]
    for each in (sink, other):
        await each.close()


async def test_of_four_that_publish_one_number_at_the_same_time_one_lands(kind):
    sinks = [await opened(kind, f"job.0.{life}") for life in range(4)]
    one = await staged(sinks[0], 1, b"a", b"b")

    await asyncio.gather(*(sink.publish([one]) for sink in sinks))

    assert payloads(kind) == [b"a", b"b"]
    for sink in sinks:
        await sink.close()


async def test_writers_of_a_group_publish_at_the_same_time(kind):
    sinks = [await opened(kind, f"worker-{worker}") for worker in range(4)]
    ready = []
    for worker, sink in enumerate(sinks):
        await sink.write(batch(b"%d" % worker))
        ready.append(await sink.stage(number(1, f"job/worker-{worker}")))

    await asyncio.gather(*(sink.publish([each]) for sink, each in zip(sinks, ready, strict=True)))

    assert payloads(kind) == [b"0", b"1", b"2", b"3"]
    for sink in sinks:
        await sink.close()


async def test_a_staged_file_that_is_gone_is_named_and_nothing_is_published(kind):
    sink = await opened(kind)
    one = await staged(sink, 1, b"a")
    (kind.data / data_files(kind)[0]).unlink()

    with pytest.raises(rp.StateError, match=r"data/job.0.1/1/1.parquet .* committed but missing: a full vacuum"):
        await sink.publish([one])

    assert payloads(kind) == []
    await sink.close()


async def test_what_a_full_vacuum_took_between_commit_and_publication_is_named(tmp_path):
    kind = Delta(tmp_path)
    sink = await opened(kind)
    one = await staged(sink, 1, b"a")
    DeltaTable(str(kind.data)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

    with pytest.raises(rp.StateError, match=r"data/job.0.1/1/1.parquet .* committed but missing: a full vacuum"):
        await sink.publish([one])
    await sink.close()


async def test_what_ended_lives_left_is_deleted_and_what_entries_name_stays(kind):
    ended, alive = await opened(kind, "job.0.1"), await opened(kind, "job.1.1")
    published, named, _ = [await staged(ended, n, b"%d" % n) for n in (1, 2, 3)]
    await ended.publish([published])
    running = await staged(alive, 1, b"x")

    await alive.discard(lambda life: life == "job.0.1", [named])

    assert data_files(kind) == [f"data/job.0.1/{stage}/1.parquet" for stage in (1, 2)] + ["data/job.1.1/1/1.parquet"]
    assert marks(kind) == ["1", "2"]
    await alive.publish([named])
    await alive.publish([Staged(number(1, "job/1"), running.content)])
    assert payloads(kind) == [b"1", b"2", b"x"]
    for sink in (ended, alive):
        await sink.close()


async def test_a_new_life_forgets_what_was_not_staged_and_discards_it_later(kind):
    sink = await opened(kind, **{"flink.sink.parquet.row.group.bytes": 1})
    await sink.write(batch(b"never"))
    await sink._write_waiting()
    await sink.write(batch(b"never"))
    await sink.begin("job.0.2")
    await sink.publish([await staged(sink, 1, b"a")])
    await sink.discard(lambda life: life == "job.0.1", ())
    assert payloads(kind) == [b"a"]
    assert data_files(kind) == ["data/job.0.2/1/1.parquet"]
    await sink.close()


async def test_shards_that_a_group_has_given_to_others_are_dropped(kind):
    sink = await opened(kind)
    sink.assigned(["orders/shardId-0", "orders/shardId-1"])
    await sink.write(batch(b"stays"))
    await sink.write(batch(b"goes", shard_id="shardId-1"))
    await sink._write_waiting()
    await sink.write(batch(b"goes too", shard_id="shardId-1"))

    sink.revoked(["orders/shardId-1"])
    one = await sink.stage(number(1))
    await sink.publish([one])

    assert payloads(kind) == [b"stays"]
    assert one.content["positions"] == {"orders/shardId-0": "1"}
    await sink.close()


async def test_a_file_of_a_shard_that_goes_and_cannot_be_dropped_ends_the_life(kind, monkeypatch):
    sink = await opened(kind, **{"flink.sink.parquet.row.group.bytes": 1})
    sink.assigned(["orders/shardId-0"])
    await sink.write(batch(b"goes"))
    await sink._write_waiting()

    def away(*_):
        raise OSError("503 Slow Down")

    with monkeypatch.context() as patched:
        patched.setattr("recordpublisher.plugins.sinks.tables.table_folder.TableFolder.delete", away)
        sink.revoked(["orders/shardId-0"])
        with pytest.raises(rp.SinkError, match="503 Slow Down"):
            await sink.stage(number(1))
    await sink.close()


async def test_a_record_that_has_no_place_is_rejected_before_the_stage_returns(kind):
    rejected = []

    async def reject(record, reason):
        rejected.append((record.data, reason))

    sink = await opened(kind, context=rp.SinkContext(reject=reject))
    await sink.write(batch(b"a", b"b").with_columns(values=[1, object()]))
    await sink.publish([await sink.stage(number(1))])

    assert [data for data, _ in rejected] == [[b"b"]]
    assert payloads(kind) == [b"a"]
    await sink.close()


async def test_a_stage_that_was_cancelled_is_part_of_the_next_one(kind):
    sink = await opened(kind)
    await sink.write(batch(b"a"))
    stage = asyncio.create_task(sink.stage(number(1)))
    await asyncio.sleep(0)
    stage.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stage

    await sink.publish([await staged(sink, 2, b"b")])

    assert payloads(kind) == [b"a", b"b"]
    await sink.close()


async def test_a_stage_that_was_cancelled_while_its_files_were_taken_is_part_of_the_next_one(kind, monkeypatch):
    sink = await opened(kind)
    await sink.write(batch(b"a"))
    loop, is_taking, may_return = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def slow(columns, taken_of=sink._files.take_staged):
        taken = taken_of(columns)
        loop.call_soon_threadsafe(is_taking.set)
        may_return.wait()
        return taken

    monkeypatch.setattr(sink._files, "take_staged", slow)
    stage = asyncio.create_task(sink.stage(number(1)))
    await is_taking.wait()
    stage.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stage
    may_return.set()

    await sink.publish([await staged(sink, 2, b"b")])

    assert payloads(kind) == [b"a", b"b"]
    await sink.close()


async def test_memory_is_bounded_by_row_groups_that_are_written_early(kind):
    sink = await opened(kind, **{"flink.sink.buffer.bytes": 20_000})
    for n in range(20):
        await sink.write(batch(*(b"%d" % n * 100 for _ in range(50))))
        await sink._write_waiting()
        assert sum(file.encoder.held_bytes for file in sink._files._open.values()) < 20_000

    await sink.publish([await sink.stage(number(1))])
    assert len(kind.rows()) == 1000
    assert len(data_files(kind)) == 1
    await sink.close()


async def test_so_many_bytes_request_a_commit(kind):
    asked = []
    sink = await opened(
        kind, context=rp.SinkContext(request_checkpoint=lambda: asked.append(1)), **{"flink.sink.table.bytes": 1}
    )
    await sink.write(batch(b"x" * 5_000_000))
    assert asked
    await sink.close()


async def test_after_an_error_of_the_disk_nothing_is_staged_in_this_life(kind, monkeypatch):
    sink = await opened(kind)
    await sink.write(batch(b"a"))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(rp.SinkError, match="No space left"):
        await sink.stage(number(1))
    monkeypatch.undo()
    with pytest.raises(rp.SinkError, match="No space left"):
        await sink.stage(number(2))

    await sink.begin("job.0.2")
    await sink.publish([await staged(sink, 3, b"b")])
    assert payloads(kind) == [b"b"]
    await sink.close()


async def test_what_a_table_names_on_a_local_disk_is_synced(kind, tmp_path, monkeypatch):
    synced = set()

    def noted(descriptor, fsync=os.fsync):
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    sink = await opened(kind)
    await sink.publish([await staged(sink, 1, b"a")])
    await sink.close()

    written = {str(file) for file in kind.data.rglob("*") if file.is_file() and not file.name.startswith(".")}
    assert written
    assert written - synced == set()
    assert {os.path.dirname(file) for file in written} <= synced


async def test_what_an_entry_names_stays_in_the_folder(kind):
    sink = await opened(kind)
    one = await staged(sink, 1, b"a")
    with pytest.raises(rp.StateError, match="names no files of a table"):
        await sink.publish([Staged(number(1), {**one.content, "life": "../../etc"})])
    await sink.close()


async def test_the_destination_names_the_table(kind):
    assert kind.sink().destination().startswith(f"{type(kind.sink()).__name__}, {kind.name.capitalize()} table ")
    assert isinstance(kind.sink(), TableSink)
