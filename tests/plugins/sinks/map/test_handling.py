"""How `MapSink` handles records: at the same time, in lists, with retries, timeouts and dead letters."""

import asyncio
import threading
from dataclasses import replace

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.testing import EPOCH_MS, VirtualClock, run_virtual

from .map_jobs import WaitingHandler, batch_of_keys, open_and_write, settle
from fakes.batches import batch


def test_records_of_other_keys_do_not_wait_and_those_of_one_key_do():
    async def job():
        handler = WaitingHandler()
        sink = rp.MapSink(handler)
        await open_and_write(sink, batch_of_keys("a", "a", "b", None))
        begun = list(handler.begun)
        handler.open[b"0"].set_result(None)
        await settle()
        await sink.close()
        return begun, handler.begun

    assert run_virtual(job()) == ([b"0", b"2", b"3"], [b"0", b"2", b"3", b"1"])


def test_at_most_concurrency_handlers_run_at_once():
    async def job():
        handler = WaitingHandler()
        sink = rp.MapSink(handler, concurrency=2, ordering="NONE")
        await open_and_write(sink, batch_of_keys("a", "b", "c"))
        await sink.close()
        return handler.begun

    assert run_virtual(job()) == [b"0", b"1"]


def test_handlers_that_never_wait_need_one_task():
    async def job():
        tasks = set()

        async def handle(record):
            tasks.add(asyncio.current_task())

        sink = rp.MapSink(handle)
        await open_and_write(sink, batch_of_keys(*(f"key-{n}" for n in range(1000))))
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
        await open_and_write(sink, batch(b"a"), request_checkpoint=lambda: requested.append(True))
        with pytest.raises(
            rp.SinkError, match="record 1 of orders/shardId-0 cannot be handled after 4 attempts: ValueError: no such"
        ):
            await sink.flush()
        await sink.close()
        return len(times), times[-1] - times[0], requested

    calls, seconds, requested = run_virtual(job())
    assert calls == 4
    assert 0 < seconds <= 0.2 + 0.4 + 0.8
    assert requested == [True]  # because a job that writes nothing must notice the error


@pytest.mark.parametrize(("back_after", "handled"), [(600, 1), (1_200, 0)])
def test_a_record_is_handled_again_for_as_long_as_retry_for(back_after, handled):
    async def job():
        loop = asyncio.get_running_loop()

        async def handle(record):
            if loop.time() < back_after:
                raise ValueError("HTTP 503")

        sink = rp.MapSink(handle, retry_for="15m", on_failure="SKIP", clock=VirtualClock())
        await open_and_write(sink, batch(b"a"))
        await sink.flush()
        await sink.close()
        return sink.metrics()["handled"], loop.time()

    done, seconds = run_virtual(job())
    assert done == handled
    assert min(back_after, 900) <= seconds < min(back_after, 900) + 10


@pytest.mark.parametrize(
    ("asked", "pause"), [(5, 5), (0, 0), (-3, 0), (1e9, 900), (float("inf"), 900), (float("nan"), 0)]
)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_record_is_handled_again_when_the_service_wants_it(asked, pause, batch_size):
    async def job():
        loop, calls = asyncio.get_running_loop(), []

        async def one(record):
            calls.append((record if batch_size == 1 else len(record), loop.time()))
            if len(calls) == 1:
                raise rp.TransientError("POST /pay", "429", "slow down", retry_after=asked)

        async def many(records: list[rp.Record]):
            await one(records)

        sink = rp.MapSink(one if batch_size == 1 else many, batch_size=batch_size, concurrency=1, clock=VirtualClock())
        await open_and_write(sink, batch(b"a") if batch_size == 1 else batch_of_keys("a", "b", "c", "d"))
        await sink.flush()
        await sink.close()
        return [at for _, at in calls]

    first, second, *_ = run_virtual(job())
    assert pause <= second - first <= pause + 0.21


class WithHeaders(rp.TransientError):
    """An error whose pause is in a header, which this response does not have."""

    @property
    def retry_after(self):
        return float({}["Retry-After"])


@pytest.mark.parametrize("batch_size", [1, 4])
def test_an_error_that_cannot_say_for_how_long_to_wait_is_an_error_like_others(batch_size):
    async def job():
        async def one(record):
            if record.data == b"0":
                raise WithHeaders("POST /pay", "503", "away")

        async def many(records: list[rp.Record]):
            for record in records:
                await one(record)

        sink = rp.MapSink(one if batch_size == 1 else many, batch_size=batch_size, on_failure="SKIP")
        await open_and_write(sink, batch_of_keys("a", "b"))
        await sink.flush()
        await sink.close()
        return sink.metrics()

    metrics = run_virtual(job())
    assert (metrics["skipped"], metrics["handled"]) == (1, 1)


def test_a_service_that_wants_a_pause_is_asked_no_longer_than_retry_for():
    async def job():
        loop, calls = asyncio.get_running_loop(), []

        async def handle(record):
            calls.append(loop.time())
            raise rp.TransientError("POST /pay", "429", "slow down", retry_after=40)

        sink = rp.MapSink(handle, retries=0, retry_for=60, on_failure="SKIP", clock=VirtualClock())
        await open_and_write(sink, batch(b"a"))
        await sink.flush()
        await sink.close()
        return [at - calls[0] for at in calls]

    assert run_virtual(job()) == pytest.approx([0, 40, 60], abs=0.01)


def test_time_in_which_the_process_was_suspended_does_not_count_for_retry_for():
    async def job():
        loop, calls = asyncio.get_running_loop(), []

        async def handle(record):
            calls.append(record)
            if len(calls) == 5:
                loop.call_soon(loop.suspend, 3_600)
            if len(calls) < 7:
                raise ValueError("HTTP 503")

        sink = rp.MapSink(handle, retry_for="15m", on_failure="SKIP", clock=VirtualClock())
        await open_and_write(sink, batch(b"a"))
        await sink.flush()
        await sink.close()
        return sink.metrics()["handled"]

    assert run_virtual(job()) == 1


def test_a_record_is_handled_again_at_least_retries_times():
    async def job():
        calls = []

        async def handle(record):
            calls.append(record)
            raise ValueError

        sink = rp.MapSink(handle, retries=3, retry_for=0.001, on_failure="SKIP", clock=VirtualClock())
        await open_and_write(sink, batch(b"a"))
        await sink.flush()
        await sink.close()
        return len(calls)

    assert run_virtual(job()) == 4


def test_a_record_that_can_never_be_handled_is_not_handled_again():
    async def job():
        calls = []

        async def handle(record):
            calls.append(record.data)
            if record.data == b"0":
                raise rp.InvalidRecordError("HTTP 422")

        sink = rp.MapSink(handle, retries=3, retry_for="15m", on_failure="SKIP", clock=VirtualClock())
        await open_and_write(sink, batch_of_keys("a", "a"))
        await sink.flush()
        await sink.close()
        return calls, sink.metrics()["skipped"]

    assert run_virtual(job()) == ([b"0", b"1"], 1)


def test_the_error_of_such_a_record_names_no_time_for_which_it_would_be_handled_again():
    async def job():
        async def handle(record):
            raise rp.InvalidRecordError("HTTP 422")

        sink = rp.MapSink(handle, retry_for="15m", clock=VirtualClock())
        await open_and_write(sink, batch(b"a"))
        try:
            await sink.flush()
        finally:
            await sink.close()

    with pytest.raises(rp.SinkError, match=r"after 1 attempt: .*HTTP 422; on_failure=SKIP or DEAD_LETTER continues"):
        run_virtual(job())


def test_on_failure_skip_counts_the_record_and_continues(caplog):
    async def job():
        async def handle(record):
            if record.data == b"0":
                raise ValueError("bad")

        sink = rp.MapSink(handle, retries=0, on_failure="SKIP")
        await open_and_write(sink, batch_of_keys("a", "a"))
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
        await open_and_write(sink, batch(b"a"), reject=reject)
        before = list(rejected)
        await sink.flush(Checkpoint({"shards": {}}, may_be_partial=True))
        await sink.close()
        return before, rejected, sink.metrics()

    before, rejected, metrics = run_virtual(job())
    assert (before, rejected) == ([], [([b"a"], "1 attempt: KeyError: 'x'")])
    assert (metrics["deadLetters"], metrics["outstanding"]) == (1, 0)


def test_dead_letters_are_rejected_together_and_marked_as_logged():
    async def job():
        calls = []

        async def reject_together(rejected, is_logged):
            calls.append(([int(record.data[0]) for record, _ in rejected], is_logged))

        async def handle(record):
            raise KeyError("x")

        sink = rp.MapSink(handle, retries=0, on_failure="DEAD_LETTER")
        await open_and_write(sink, batch_of_keys("a", "b", "c"), reject_together=reject_together)
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
        await open_and_write(sink, batch(b"a"))
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
        await open_and_write(sink, batch_of_keys("a"))
        await asyncio.sleep(1)
        second = batch(b"later", shard_id="shardId-1")
        await sink.write(second)
        await sink.flush()
        await sink.close()
        return ended

    assert run_virtual(job()) == {b"0": 2.0, b"later": 3.0}


def test_a_handler_that_cancels_itself_has_failed():
    async def job():
        calls = []

        async def handle(record):
            calls.append(record)
            if len(calls) == 1:
                raise asyncio.CancelledError

        sink = rp.MapSink(handle)
        await open_and_write(sink, batch(b"a"))
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
        await open_and_write(sink, batch_of_keys("a", "b"))
        await sink.close()
        return ended, sink.metrics()["outstanding"], asyncio.get_running_loop().time()

    ended, outstanding, now = run_virtual(job())
    assert (sorted(ended), outstanding, now) == ([b"0", b"1"], 2, 0.0)


def test_old_records_are_skipped_without_a_call():
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
        await open_and_write(sink, replace(made, records=records))
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
    await sink.write(batch_of_keys("a", "b"))
    await sink.flush()
    await sink.close()
    assert seen == [False, False]


# --- Lists of records (`batch_size` above 1) ---


def test_the_traceback_of_a_record_that_fails_in_a_list_has_its_own_error_only(caplog):
    async def job():
        async def handle(records: list[rp.Record]):
            if any(record.data == b"3" for record in records):
                raise ValueError("no such customer")

        sink = rp.MapSink(handle, batch_size=4, concurrency=1, retries=0, on_failure="SKIP")
        await open_and_write(sink, batch_of_keys("a", "b", "c", "d"))
        await sink.flush()
        await sink.close()
        return sink.metrics()

    counts = run_virtual(job())
    assert (counts["handled"], counts["skipped"]) == (3, 1)
    (line,) = (line for line in caplog.records if line.exc_info)
    assert line.exc_info[1].__context__ is None


async def test_a_call_in_a_thread_that_returns_after_an_error_of_the_job_no_longer_runs():
    may_return = threading.Event()

    def handle(record):
        if record.data == b"0":
            raise ValueError("no such customer")
        may_return.wait(60)

    sink = rp.MapSink(handle, retries=0, concurrency=2)
    await open_and_write(sink, batch_of_keys("a", "b"))
    with pytest.raises(rp.SinkError):
        await sink.flush()
    during = sink.unfinished()
    may_return.set()
    while sink.metrics()["handled"] == 0:  # noqa: ASYNC110 - the sink has no event for it
        await asyncio.sleep(0.01)
    after = sink.unfinished()
    await sink.close()
    assert (during.calls, during.records) == (1, 2)
    assert (after.calls, after.call, after.reason) == (0, None, "records not handled: 1")


def numbers(records):
    return [int(record.data) for record in records]


def calls_of(handle, *batches, **options):
    """Return the lists that a handler was called with. `handle(numbers, call)` raises an error, or returns the numbers that failed."""

    async def job():
        calls = []

        async def handler(records):
            calls.append(numbers(records))
            failed = handle(numbers(records), len(calls)) or []
            return [record for record in records if int(record.data) in failed]

        sink = rp.MapSink(handler, **{"batch_size": 4, "concurrency": 1, **options})
        await open_and_write(sink, *batches)
        await sink.flush()
        await sink.close()
        return calls, sink.metrics()

    return run_virtual(job())


def test_a_list_has_records_of_several_keys_and_those_of_one_key_in_order():
    calls, _ = calls_of(lambda records, call: None, batch_of_keys("a", "a", "b", "a", "c"))
    assert calls == [[0, 1, 3, 2], [4]]


def test_a_list_that_raises_is_halved_until_the_failing_record_is_alone():
    def handle(records, call):
        if 2 in records:
            raise ValueError("two")

    calls, metrics = calls_of(handle, batch_of_keys("a", "b", "c", "d"), retries=0, on_failure="SKIP")
    assert calls == [[0, 1, 2, 3], [0, 1], [2, 3], [2], [3]]
    assert (metrics["skipped"], metrics["handled"]) == (1, 3)


@pytest.mark.parametrize("error", [ValueError("too long"), TimeoutError("too long")])
def test_an_error_that_only_long_lists_have_is_logged_and_a_timeout_of_one_is_counted(caplog, error):
    def handle(records, call):
        if len(records) > 2:
            raise error

    calls, metrics = calls_of(handle, batch_of_keys("a", "b", "c", "d"), on_failure="SKIP")
    assert calls == [[0, 1, 2, 3], [0, 1], [2, 3]]
    assert metrics["timeouts"] == isinstance(error, TimeoutError)
    (line,) = caplog.records
    assert line.exc_info[1] is error
    assert line.getMessage() == (
        "the handler failed for a list of 4 records that begin with record 1 of orders/shardId-0: "
        f"{type(error).__name__}: too long. Each half was handled, by a call of its own"
    )


@pytest.mark.parametrize("limit", [{}, {"retries": 0}, {"retries": 0, "retry_for": 60}])
def test_a_record_of_a_list_whose_error_asks_for_a_pause_every_time_fails_alone(limit):
    def handle(records, call):
        if 2 in records:
            raise rp.TransientError("POST /pay", "429", "slow down", retry_after=20)

    batch = batch_of_keys("a", "b", "c", "d")
    calls, metrics = calls_of(handle, batch, on_failure="SKIP", clock=VirtualClock(), **limit)
    assert (metrics["skipped"], metrics["handled"]) == (1, 3)
    sizes = [len(call) for call in calls]
    assert sorted(sizes[-5:]) == [1, 1, 2, 2, 4]
    assert set(sizes[:-5]) <= {4}, "a service that wants a pause is not asked for the halves before the last attempt"


def test_returned_records_are_handled_again_with_those_behind_them_of_their_key():
    calls, metrics = calls_of(lambda records, call: [1] if call == 1 else [], batch_of_keys("a", "a", "a", "b"))
    assert calls == [[0, 1, 2, 3], [1, 2]]
    assert (metrics["retries"], metrics["handled"]) == (1, 4)


def test_a_list_that_returns_anything_else_has_failed():
    async def job():
        async def handler(records):
            return ["no record"]

        sink = rp.MapSink(handler, batch_size=2, retries=0)
        await open_and_write(sink, batch_of_keys("a"))
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
        await sink.write(batch_of_keys("a"))
        await asyncio.sleep(2)
        await sink.write(batch_of_keys("b"))
        await asyncio.sleep(10)
        await sink.write(batch_of_keys("c", "d", "e"))
        await settle()
        await sink.write(batch_of_keys("f"))
        await sink.flush()  # flush waits for the record, so the list does not wait for more
        await sink.close()
        return calls

    assert run_virtual(job()) == [(5.0, 2), (12.0, 3), (12.0, 1)]


@pytest.mark.parametrize("ordering", ["PER_KEY", "PER_SHARD"])
def test_a_list_is_full_with_the_records_that_wait_behind_one_key(ordering):
    async def job():
        calls = []

        async def handler(records):
            calls.append((asyncio.get_running_loop().time(), len(records)))

        sink = rp.MapSink(handler, batch_size=3, batch_wait=5.0, ordering=ordering)
        await open_and_write(sink, batch_of_keys("a", "a", "a", "a", "a", "a"))
        await sink.close()
        return calls

    assert run_virtual(job()) == [(0.0, 3), (0.0, 3)]


def test_a_list_does_not_wait_while_no_more_records_may_come():
    async def job():
        calls = []

        async def handler(records):
            calls.append((asyncio.get_running_loop().time(), len(records)))

        sink = rp.MapSink(handler, batch_size=3, batch_wait=5.0, max_bytes=1)
        await open_and_write(sink, batch_of_keys("a", "b"))
        await sink.close()
        return calls

    assert run_virtual(job()) == [(0.0, 2)]


def test_a_list_does_not_wait_once_the_run_has_ended():
    async def job():
        calls = []

        async def handler(records):
            calls.append(asyncio.get_running_loop().time())

        sink = rp.MapSink(handler, batch_size=3, batch_wait=5.0)
        await sink.open(SinkContext())
        await sink.write(batch_of_keys("a"))
        await sink.flush(Checkpoint({"shards": {}}, may_be_partial=True, is_last=True))
        await settle()
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

        given, now = batch_of_keys("a", "a", "b", "a"), EPOCH_MS / 1000
        records = [
            rp.UserRecord(each.data, each.sequence_number, arrival, each.partition_key)
            for each, arrival in zip(given.records, (now, now - 60, now - 60, now), strict=True)
        ]
        sink = rp.MapSink(
            handler, batch_size=4, max_age=50.0, retries=0, on_failure="DEAD_LETTER", clock=VirtualClock()
        )
        await open_and_write(sink, replace(given, records=records), reject=reject)
        before = sink.metrics()
        checkpoint = Checkpoint({"shards": {given.shard.key: {"position": "4"}}}, may_be_partial=True)
        stored = await sink.flush(checkpoint)
        await sink.close()
        return calls, rejected, before, stored, checkpoint.state, sink.metrics()

    calls, rejected, before, stored, newest, metrics = run_virtual(job())
    assert calls == [[0, 3], [0], [3]], "the old records are rejected without a call"
    assert before["outstanding"] == 4, "a dead letter is outstanding until the job has taken it"
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

        given = batch_of_keys("a", "b")
        sink = rp.MapSink(handler, max_age=1.0, on_failure="DEAD_LETTER", clock=VirtualClock())
        now = EPOCH_MS / 1000
        old = [rp.UserRecord(each.data, each.sequence_number, now - 5, each.partition_key) for each in given.records]
        await open_and_write(sink, replace(given, records=old), reject=reject)
        checkpoint = Checkpoint({"shards": {given.shard.key: {"position": "2"}}}, may_be_partial=True)
        flushing = asyncio.create_task(sink.flush(checkpoint))
        await settle()
        is_waiting = not flushing.done()
        taken.set()
        stored = await flushing
        await sink.close()
        return is_waiting, stored == checkpoint.state, sink.metrics()["handled"]

    assert run_virtual(job()) == (True, True, 0)


def test_the_durations_of_calls_and_the_delays_of_records_are_counted():
    """Three calls of 2 s, of which the first fails; the second record waits for the first one of its key."""

    async def job():
        calls = []

        async def handle(record):
            calls.append(record)
            await asyncio.sleep(2)
            if len(calls) == 1:
                raise OSError

        sink = rp.MapSink(handle, clock=VirtualClock())
        await open_and_write(sink, batch_of_keys("a", "a"))
        await asyncio.sleep(60)
        await sink.close()
        return sink.metrics()

    metrics = run_virtual(job())
    durations, delays = metrics["handlerDurationMs"], metrics["handlingDelayMs"]
    assert (sum(durations["counts"]), durations["sum"]) == (3, 6_000)
    assert sum(delays["counts"]) == metrics["handled"] == 2


def test_each_handler_of_a_stream_gets_lists_of_its_stream_and_only_its_bad_record_fails():
    orders, payments = [], []

    async def on_orders(records: list[rp.Record]):
        orders.append([record.data for record in records])

    async def on_payments(values: list[bytes]):
        payments.append(values)
        if b"1" in values:
            raise ValueError("bad")

    async def story():
        handlers = {"orders": on_orders, "payments": on_payments}
        sink = rp.MapSink(handlers, batch_size=10, retries=0, on_failure="SKIP", ordering="NONE")
        mixed = [batch(b"0", b"1", b"2"), batch(b"0", b"1", stream="payments"), batch(b"3", first=4)]
        await open_and_write(sink, *mixed, streams=("orders", "payments"))
        await sink.flush()
        await sink.close()

    run_virtual(story())
    assert [len(records) for records in orders if len(records) > 1]
    assert sorted(data for records in orders for data in records) == [b"0", b"1", b"2", b"3"]
    assert payments[0] == [b"0", b"1"]
    assert payments[1:] == [[b"0"], [b"1"]]
