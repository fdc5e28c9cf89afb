"""MapSink: a function for each record, with retries, time-outs and a bounded number at once."""

import asyncio
import threading
from dataclasses import replace

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.testing import EPOCH_MS, VirtualClock, run_virtual

from .map_jobs import Running, keyed, settled, written
from fakes.batches import batch


def test_records_of_other_keys_do_not_wait_and_those_of_one_key_do():
    async def job():
        handler = Running()
        sink = rp.MapSink(handler)
        await written(sink, keyed("a", "a", "b", None))
        begun = list(handler.begun)
        handler.open[b"0"].set_result(None)
        await settled()
        await sink.close()
        return begun, handler.begun

    assert run_virtual(job()) == ([b"0", b"2", b"3"], [b"0", b"2", b"3", b"1"])


def test_at_most_so_many_run_at_once():
    async def job():
        handler = Running()
        sink = rp.MapSink(handler, concurrency=2, ordering="NONE")
        await written(sink, keyed("a", "b", "c"))
        await sink.close()
        return handler.begun

    assert run_virtual(job()) == [b"0", b"1"]


def test_handlers_that_never_wait_need_one_task():
    async def job():
        tasks = set()

        async def handle(record):
            tasks.add(asyncio.current_task())

        sink = rp.MapSink(handle)
        await written(sink, keyed(*(f"key-{n}" for n in range(1000))))
        await sink.close()
        return len(tasks), sink.metrics()["handled"]

    assert run_virtual(job()) == (1, 1000)


def test_a_record_that_fails_is_handled_again_after_pauses_and_then_fails_the_job():
    async def job():
        times = []

        async def handle(record):
            times.append(asyncio.get_running_loop().time())
            raise ValueError("no such customer")

        sink = rp.MapSink(handle, retries=3)
        requested = []
        await written(sink, batch(b"a"), request_checkpoint=lambda: requested.append(True))
        with pytest.raises(
            rp.SinkError, match="record 1 of orders/shardId-0 cannot be handled after 4 attempts: ValueError: no such"
        ):
            await sink.flush()
        await sink.close()
        return len(times), times[-1] - times[0], requested

    calls, seconds, requested = run_virtual(job())
    assert calls == 4
    assert 0 < seconds <= 0.2 + 0.4 + 0.8
    assert requested == [True]  # so that an error is seen at once, also when nothing is written


def test_on_failure_skip_counts_and_goes_on(caplog):
    async def job():
        async def handle(record):
            if record.data == b"0":
                raise ValueError("bad")

        sink = rp.MapSink(handle, retries=0, on_failure="SKIP")
        await written(sink, keyed("a", "a"))
        await sink.flush()
        await sink.close()
        return sink.metrics()

    metrics = run_virtual(job())
    assert (metrics["skipped"], metrics["handled"], metrics["outstanding"], metrics["heldBytes"]) == (1, 1, 0, 0)
    assert "skipped record 1 of orders/shardId-0: 1 attempt: ValueError: bad" in caplog.text


def test_dead_letters_are_rejected_by_the_next_call_of_the_sink():
    async def job():
        rejected = []

        async def reject(record, reason):
            rejected.append((record.data, reason))

        async def handle(record):
            raise KeyError("x")

        sink = rp.MapSink(handle, retries=0, on_failure="DEAD_LETTER")
        await written(sink, batch(b"a"), reject=reject)
        before = list(rejected)
        await sink.flush(Checkpoint({"shards": {}}, may_be_partial=True))
        await sink.close()
        return before, rejected, sink.metrics()

    before, rejected, metrics = run_virtual(job())
    assert (before, rejected) == ([], [([b"a"], "1 attempt: KeyError: 'x'")])
    assert (metrics["deadLetters"], metrics["outstanding"]) == (1, 0)


def test_dead_letters_are_rejected_together_and_said_to_be_logged():
    async def job():
        calls = []

        async def reject_together(rejected, is_logged):
            calls.append(([int(record.data[0]) for record, _ in rejected], is_logged))

        async def handle(record):
            raise KeyError("x")

        sink = rp.MapSink(handle, retries=0, on_failure="DEAD_LETTER")
        await written(sink, keyed("a", "b", "c"), reject_together=reject_together)
        await sink.flush(Checkpoint({"shards": {}}, may_be_partial=True))
        await sink.close()
        return calls

    assert run_virtual(job()) == [([0, 1, 2], True)]


def test_a_handler_that_takes_too_long_is_cancelled_and_called_again():
    async def job():
        ended = []

        async def handle(record):
            try:
                await asyncio.sleep(0 if ended else 60)
            finally:
                ended.append(asyncio.get_running_loop().time())

        sink = rp.MapSink(handle, timeout=2.0)
        await written(sink, batch(b"a"))
        await sink.flush()
        await sink.close()
        return ended[0], sink.metrics()

    ended, metrics = run_virtual(job())
    assert (ended, metrics["timeouts"], metrics["handled"]) == (2.0, 1, 1)


def test_each_handler_has_its_own_deadline():
    async def job():
        ended = {}

        async def handle(record):
            try:
                await asyncio.sleep(60)
            finally:
                ended[record.data] = asyncio.get_running_loop().time()

        sink = rp.MapSink(handle, timeout=2.0, retries=0, on_failure="SKIP")
        await written(sink, keyed("a"))
        await asyncio.sleep(1)
        second = batch(b"later", shard_id="shardId-1")
        await sink.write(second)
        await sink.flush()
        await sink.close()
        return ended

    assert run_virtual(job()) == {b"0": 2.0, b"later": 3.0}


def test_a_handler_that_ends_itself_by_cancelling_has_failed():
    async def job():
        calls = []

        async def handle(record):
            calls.append(record)
            if len(calls) == 1:
                raise asyncio.CancelledError

        sink = rp.MapSink(handle)
        await written(sink, batch(b"a"))
        await sink.flush()
        await sink.close()
        return len(calls)

    assert run_virtual(job()) == 2


def test_closing_cancels_what_runs():
    async def job():
        ended = []

        async def handle(record):
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append(record.data)

        sink = rp.MapSink(handle, timeout=500)
        await written(sink, keyed("a", "b"))
        await sink.close()
        return ended, sink.metrics()["outstanding"], asyncio.get_running_loop().time()

    ended, outstanding, now = run_virtual(job())
    assert (sorted(ended), outstanding, now) == ([b"0", b"1"], 2, 0.0)


def test_old_records_are_skipped_unseen():
    async def job():
        seen = []

        async def handle(record):
            seen.append(record.data)

        made = batch(b"old", b"new")
        arrivals = (EPOCH_MS / 1000 - 61, EPOCH_MS / 1000 - 59)
        records = [
            rp.UserRecord(r.data, r.sequence_number, at, "key") for r, at in zip(made.records, arrivals, strict=True)
        ]
        sink = rp.MapSink(handle, max_age=60, clock=VirtualClock())
        await written(sink, replace(made, records=records))
        await sink.flush()
        await sink.close()
        return seen, sink.metrics()["expired"]

    assert run_virtual(job()) == ([b"new"], 1)


async def test_a_plain_function_is_called_in_threads():
    both = threading.Barrier(2, timeout=60)
    seen = []

    def handle(record):
        both.wait()
        seen.append(threading.current_thread() is threading.main_thread())

    sink = rp.MapSink(handle, concurrency=2)
    await sink.open(SinkContext())
    await sink.write(keyed("a", "b"))
    await sink.flush()
    await sink.close()
    assert seen == [False, False]


@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("concurrency", 0, "an integer, at least 1"),
        ("batch_size", True, "an integer, at least 1"),
        ("retries", -1, "an integer, at least 0"),
        ("batch_wait", -0.1, "seconds, at least 0"),
        ("timeout", 0, "seconds above 0, or None"),
        ("max_age", "1h", "seconds above 0, or None"),
        ("ordering", "BY_KEY", "NONE, PER_KEY, PER_SHARD"),
        ("on_failure", "IGNORE", "FAIL, SKIP, DEAD_LETTER"),
    ],
)
def test_wrong_arguments_are_named_with_what_is_valid(name, value, valid):
    async def handle(record):
        pass

    with pytest.raises(rp.ConfigurationError) as raised:
        rp.MapSink(handle, **{name: value})
    assert (raised.value.key, raised.value.value, raised.value.valid) == (name, value, valid)


def test_a_time_out_of_a_plain_function_is_refused():
    with pytest.raises(rp.ConfigurationError, match="a thread cannot be ended from outside"):
        rp.MapSink(print, timeout=1)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(rp.ConfigurationError, match="handler"):
        rp.MapSink("my_module:handle")
