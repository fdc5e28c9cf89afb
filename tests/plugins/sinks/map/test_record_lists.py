"""MapSink with `batch_size` above 1: the handler gets lists."""

import asyncio

import recordpublisher as rp
from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.testing import run_virtual

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
