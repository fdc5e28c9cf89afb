"""MapSink with `batch_size` above 1: the handler gets lists."""

import asyncio
from dataclasses import replace

import recordpublisher as rp
from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.testing import VirtualClock, run_virtual
from recordpublisher.testing.virtual_time import EPOCH_MS

from .map_jobs import keyed, settled, written


def numbers(records):
    return [int(record.data) for record in records]


def calls_of(handle, *batches, **options):
    """The lists that a handler was called with; `handle(numbers)` raises, or returns the numbers that failed."""

    async def job():
        calls = []

        async def handler(records):
            calls.append(numbers(records))
            failed = handle(numbers(records), len(calls)) or []
            return [record for record in records if int(record.data) in failed]

        sink = rp.MapSink(handler, **{"batch_size": 4, "concurrency": 1, **options})
        await written(sink, *batches)
        await sink.flush()
        await sink.close()
        return calls, sink.metrics()

    return run_virtual(job())


def test_a_list_has_records_of_several_keys_and_those_of_one_key_in_order():
    calls, _ = calls_of(lambda records, call: None, keyed("a", "a", "b", "a", "c"))
    assert calls == [[0, 1, 3, 2], [4]]


def test_a_list_that_raises_is_halved_until_the_failing_record_stands_alone():
    def handle(records, call):
        if 2 in records:
            raise ValueError("two")

    calls, metrics = calls_of(handle, keyed("a", "b", "c", "d"), retries=0, on_failure="SKIP")
    assert calls == [[0, 1, 2, 3], [0, 1], [2, 3], [2], [3]]
    assert (metrics["skipped"], metrics["handled"]) == (1, 3)


def test_returned_records_are_handled_again_with_those_behind_them_of_their_key():
    calls, metrics = calls_of(lambda records, call: [1] if call == 1 else [], keyed("a", "a", "a", "b"))
    assert calls == [[0, 1, 2, 3], [1, 2]]
    assert (metrics["retries"], metrics["handled"]) == (1, 4)


def test_anything_else_returned_is_an_error_that_says_what_may_be():
    async def job():
        async def handler(records):
            return ["no record"]

        sink = rp.MapSink(handler, batch_size=2, retries=0)
        await written(sink, keyed("a"))
        try:
            await sink.flush()
        except rp.SinkError as error:
            return str(error)
        finally:
            await sink.close()

    assert "may return failed records of its list, or nothing; it returned ['no record']" in run_virtual(job())


def test_a_list_waits_for_more_records():
    async def job():
        calls = []

        async def handler(records):
            calls.append((asyncio.get_running_loop().time(), len(records)))

        sink = rp.MapSink(handler, batch_size=3, batch_wait=5.0)
        await sink.open(SinkContext())
        await sink.write(keyed("a"))
        await asyncio.sleep(2)
        await sink.write(keyed("b"))
        await asyncio.sleep(10)
        await sink.write(keyed("c", "d", "e"))
        await settled()
        await sink.write(keyed("f"))
        await sink.flush()  # what must be handled now does not wait
        await sink.close()
        return calls

    assert run_virtual(job()) == [(5.0, 2), (12.0, 3), (12.0, 1)]


def test_a_list_does_not_wait_once_the_run_has_ended():
    async def job():
        calls = []

        async def handler(records):
            calls.append(asyncio.get_running_loop().time())

        sink = rp.MapSink(handler, batch_size=3, batch_wait=5.0)
        await sink.open(SinkContext())
        await sink.write(keyed("a"))
        await sink.flush(Checkpoint({"shards": {}}, may_be_partial=True, is_last=True))
        await settled()
        await sink.close()
        return calls

    assert run_virtual(job()) == [0.0]


def test_old_records_of_a_list_are_left_out_and_go_to_the_dead_letters():
    async def job():
        calls, rejected = [], []

        async def handler(records):
            calls.append(numbers(records))
            raise ValueError("no")

        async def reject(record, reason):
            rejected.append((int(record.data[0]), reason))

        given, now = keyed("a", "a", "b", "a"), EPOCH_MS / 1000
        records = [
            rp.UserRecord(each.data, each.sequence_number, arrival, each.partition_key)
            for each, arrival in zip(given.records, (now, now - 60, now - 60, now), strict=True)
        ]
        sink = rp.MapSink(
            handler, batch_size=4, max_age=50.0, retries=0, on_failure="DEAD_LETTER", clock=VirtualClock()
        )
        await written(sink, replace(given, records=records), reject=reject)
        before = sink.metrics()
        checkpoint = Checkpoint({"shards": {given.shard.key: {"position": "4"}}}, may_be_partial=True)
        stored = await sink.flush(checkpoint)
        await sink.close()
        return calls, rejected, before, stored, checkpoint.state, sink.metrics()

    calls, rejected, before, stored, newest, metrics = run_virtual(job())
    assert calls == [[0, 3], [0], [3]], "the old ones are given up without a call"
    assert before["outstanding"] == 4, "a dead letter is not handled until the job has taken it"
    assert sorted(number for number, _ in rejected) == [0, 1, 2, 3]
    assert {reason for number, reason in rejected if number in (1, 2)} == {"older than max_age (50 s)"}
    assert stored == newest
    assert (metrics["expired"], metrics["deadLetters"], metrics["outstanding"]) == (2, 4, 0)


def test_an_old_record_that_becomes_a_dead_letter_holds_its_position_until_the_job_has_taken_it():
    async def job():
        taken = asyncio.Event()

        async def handler(record):
            pass

        async def reject(record, reason):
            await taken.wait()

        given = keyed("a", "b")
        sink = rp.MapSink(handler, max_age=1.0, on_failure="DEAD_LETTER", clock=VirtualClock())
        now = EPOCH_MS / 1000
        old = [rp.UserRecord(each.data, each.sequence_number, now - 5, each.partition_key) for each in given.records]
        await written(sink, replace(given, records=old), reject=reject)
        checkpoint = Checkpoint({"shards": {given.shard.key: {"position": "2"}}}, may_be_partial=True)
        flushing = asyncio.create_task(sink.flush(checkpoint))
        await settled()
        is_waiting = not flushing.done()
        taken.set()
        stored = await flushing
        await sink.close()
        return is_waiting, stored == checkpoint.state, sink.metrics()["handled"]

    assert run_virtual(job()) == (True, True, 0)
