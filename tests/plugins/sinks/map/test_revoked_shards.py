"""MapSink calls no handler for shards that another process has, nor while the job may not write (E4)."""

import asyncio
from dataclasses import replace

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.sink import Checkpoint
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing import run_virtual

from .map_jobs import Running, keyed, settled, written
from fakes.batches import batch

MINE, LOST = "orders/mine", "orders/lost"


class Permission:
    is_given = True

    def __call__(self):
        return self.is_given


def of_shard(shard_id, *payloads):
    return batch(*payloads, shard_id=shard_id)


def test_handlers_wait_for_the_permission_of_the_job():
    async def job():
        handler, permission = Running(), Permission()
        permission.is_given = False
        sink = rp.MapSink(handler)
        await written(sink, keyed("a", "b"), may_write=permission)
        await asyncio.sleep(60)
        before = list(handler.begun)
        permission.is_given = True
        await asyncio.sleep(1)
        await sink.close()
        return before, handler.begun

    assert run_virtual(job()) == ([], [b"0", b"1"])


@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY", "PER_SHARD"])
def test_records_of_a_revoked_shard_are_not_handled_and_those_of_others_are(ordering):
    async def job():
        handler = Running()
        sink = rp.MapSink(handler, concurrency=1, ordering=ordering)
        await written(sink, of_shard("lost", b"0", b"1", b"2"), of_shard("mine", b"3"))
        sink.revoked([LOST])
        handler.open[b"0"].set_result(None)
        await settled()
        handler.open[b"3"].set_result(None)
        await sink.flush(Checkpoint({"shards": {MINE: {"position": "1"}}}))
        await sink.close()
        return handler.begun, sink.metrics()

    begun, metrics = run_virtual(job())
    assert begun == [b"0", b"3"]
    assert (metrics["outstanding"], metrics["heldBytes"], metrics["handled"]) == (0, 0, 2)


def test_a_shard_that_is_revoked_while_the_job_may_not_write_holds_nothing():
    async def job():
        sink = rp.MapSink(Running())
        await written(sink, of_shard("lost", b"0", b"1"), may_write=lambda: False)
        sink.revoked([LOST])
        await sink.flush()
        await sink.close()
        return sink.metrics()["outstanding"]

    assert run_virtual(job()) == 0


def test_a_failed_record_of_a_revoked_shard_is_not_handled_again():
    async def job():
        begun = []

        async def handle(record):
            begun.append(record.data)
            raise ValueError("no")

        sink = rp.MapSink(handle, ordering="PER_SHARD", retries=1)
        await written(sink, of_shard("lost", b"0", b"1"))
        sink.revoked([LOST])
        await sink.flush()
        await sink.close()
        return begun

    assert run_virtual(job()) == [b"0"]


def test_a_handler_that_fails_after_its_shard_was_revoked_does_not_fail_the_job():
    async def job():
        handler = Running()
        sink = rp.MapSink(handler, retries=0)
        await written(sink, of_shard("lost", b"0", b"1"))
        sink.revoked([LOST])
        handler.open[b"0"].set_exception(ValueError("no"))
        await sink.flush()
        await sink.close()
        return handler.begun

    assert run_virtual(job()) == [b"0"]


def test_a_write_that_waits_for_room_is_dropped_with_its_shard():
    async def job():
        handler = Running()
        sink = rp.MapSink(handler, max_bytes=1)
        await written(sink, of_shard("mine", b"0"))
        waiting = asyncio.create_task(sink.write(of_shard("lost", b"1")))
        await settled()
        sink.revoked([LOST])
        handler.open[b"0"].set_result(None)
        await waiting
        await sink.flush()
        await sink.close()
        return handler.begun

    assert run_virtual(job()) == [b"0"]


def test_the_rest_of_a_list_that_fails_waits_for_the_permission_and_goes_with_its_shard():
    async def job():
        calls, permission = [], Permission()

        async def handle(records):
            calls.append([record.data for record in records])
            permission.is_given = False
            raise ValueError("no")

        sink = rp.MapSink(handle, batch_size=4, ordering="NONE", retries=0, on_failure="SKIP")
        await written(sink, of_shard("lost", b"0", b"1", b"2", b"3"), may_write=permission)
        await asyncio.sleep(60)
        sink.revoked([LOST])
        await sink.flush()
        await sink.close()
        return calls

    assert run_virtual(job()) == [[b"0", b"1", b"2", b"3"]]


def test_a_revoked_shard_that_comes_back_begins_anew():
    async def job():
        handler = Running()
        sink = rp.MapSink(handler, ordering="PER_SHARD")
        await written(sink, of_shard("lost", b"0", b"1"))
        sink.revoked([LOST])
        sink.assigned([LOST])
        await sink.write(of_shard("lost", b"2"))
        handler.open[b"0"].set_result(None)
        await settled()
        state = await sink.flush(Checkpoint({"shards": {LOST: {"position": "2"}}}, may_be_partial=True))
        await sink.close()
        return handler.begun, state["shards"]

    assert run_virtual(job()) == ([b"0", b"2"], {})


def test_a_child_that_is_revoked_while_it_waits_for_its_parent_may_come_back():
    async def job():
        handler = Running()
        sink = rp.MapSink(handler, ordering="PER_SHARD")
        child = Shard("orders", "child", ("mine",))
        await written(sink, of_shard("mine", b"0"), replace(of_shard("child", b"1"), shard=child))
        sink.revoked(["orders/child"])
        handler.open[b"0"].set_result(None)
        await settled()
        await sink.write(replace(of_shard("child", b"2"), shard=child))
        await settled()
        await sink.close()
        return handler.begun

    assert run_virtual(job()) == [b"0", b"2"]
