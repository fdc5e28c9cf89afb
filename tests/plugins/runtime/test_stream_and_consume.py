"""`rp.stream` and `rp.consume`: iteration that can be left at any time and leaves nothing behind."""

import asyncio
import json
import signal
import sys
import threading
from contextlib import aclosing

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.local.clock import SteppingClock
from recordpublisher.publishers.clock import SystemClock

from fakes.memory_store import MemoryStore
from fakes.memory_streams import PROPERTIES, install


class KeptStates(MemoryStore):
    """Knows the last stored position."""

    @property
    def position(self):
        parts = [json.loads(each.value) for name, each in self.values.items() if name.startswith("group/positions/")]
        return next(state for shard, _, state in parts[-1]["positions"] if shard == "orders/a").get("position")


@pytest.fixture
def orders(monkeypatch):
    install(monkeypatch, {"a": [b"%d" % number for number in range(10)]})


@pytest.fixture(autouse=True)
def _no_threads_are_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def consumed(**options):
    return rp.consume(["orders"], PROPERTIES, **options)


def test_records_come_one_by_one_until_the_bound(orders):
    assert [record.data for record in consumed(max_records=5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_consume_ends_at_the_tip(orders):
    assert len(list(consumed(stop_at_tip=True))) == 10


def test_a_type_is_what_json_is_decoded_into(orders):
    assert [record.value for record in rp.consume("orders", PROPERTIES, deserializer=int, stop_at_tip=True)] == [
        *range(10)
    ]


def test_a_value_that_is_not_of_the_type_is_named(orders):
    with pytest.raises(rp.DeserializationError, match=r"it is not a valid str: \$: expected str, got int"):
        list(rp.consume("orders", PROPERTIES, deserializer=str, stop_at_tip=True))


def test_for_over_consume_in_a_coroutine_names_its_twin(orders):
    async def program():
        return list(consumed(stop_at_tip=True))

    with pytest.raises(rp.RecordPublisherError, match=r"write `async for record in rp\.consume"):
        asyncio.run(program())


def test_consume_works_inside_the_running_event_loop_of_a_notebook(orders, monkeypatch):
    monkeypatch.setitem(sys.modules, "ipykernel", sys)

    async def notebook():
        return len(list(consumed(stop_at_tip=True)))

    assert asyncio.run(notebook()) == 10


def test_an_error_in_async_for_leaves_nothing_for_the_loop_to_complain_of(orders):
    complaints = []

    async def program():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        records = consumed()
        async for _ in records:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(program())
    assert complaints == []


def test_records_of_a_batch_that_was_begun_do_not_come_after_aclose(orders):
    async def program():
        records = consumed()
        await anext(records)
        await records.aclose()
        return [record async for record in records]

    assert asyncio.run(program()) == []


def test_async_for_after_for_is_refused(orders):
    records = consumed()
    next(records)

    async def go_on():
        return [record async for record in records]

    with pytest.raises(rp.RecordPublisherError, match="another loop has already begun to read these records"):
        asyncio.run(go_on())
    records.close()


def test_for_after_async_for_is_refused(orders):
    async def program():
        records = consumed()
        await anext(aiter(records))
        with pytest.raises(rp.RecordPublisherError, match="another loop has already begun to read these records"):
            next(records)
        await records.aclose()

    asyncio.run(program())


def test_leaving_the_loop_ends_the_job_and_its_thread(orders):
    for record in consumed():
        if record.data == b"4":
            break

    del record


def test_another_thread_ends_a_read_that_waits_for_the_next_record(monkeypatch):
    install(monkeypatch, {"a": [b"first"]})
    records, read = consumed(), []
    waiting = threading.Event()

    def work():
        for record in records:
            read.append(record.data)
            waiting.set()

    reader = threading.Thread(target=work)
    reader.start()
    assert waiting.wait(60)
    records.close()
    reader.join(60)
    assert not reader.is_alive()
    assert read == [b"first"]
    assert next(records, None) is None


def test_a_batch_that_was_not_consumed_completely_does_not_count(orders):
    store = KeptStates()
    records = consumed(state_store=store)
    taken = [next(records) for _ in range(4)]
    records.close()

    assert [record.data for record in taken] == [b"0", b"1", b"2", b"3"]
    assert store.position == "2", "three records of the first batch; the second was not finished"


def test_a_restart_continues_after_the_last_whole_batch(orders):
    store = KeptStates()
    records = consumed(state_store=store)
    for _ in range(4):
        next(records)
    records.close()

    assert next(iter(consumed(state_store=store, stop_at_tip=True))).data == b"3"


def test_an_error_of_the_loops_body_is_raised(orders):
    def body():
        for _ in consumed():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()


def test_an_error_of_the_reading_is_raised_from_the_iteration(monkeypatch):
    install(monkeypatch, {"a": [b"0", rp.FatalKinesisError("GetRecords", "AccessDenied", "no")]})
    records = consumed()

    assert next(records).data == b"0"
    with pytest.raises(rp.FatalKinesisError, match="AccessDenied"):
        next(records)


class InterruptsOnce(list):
    """Payloads of a shard; the first access to them interrupts the thread that waits for the iteration."""

    def __init__(self):
        super().__init__()
        self.threads = [threading.get_ident()]

    def __getitem__(self, place):
        if self.threads:
            signal.pthread_kill(self.threads.pop(), signal.SIGINT)
        return super().__getitem__(place)


def test_a_keyboard_interrupt_while_waiting_ends_everything(monkeypatch):
    install(monkeypatch, {"a": InterruptsOnce()})

    with pytest.raises(KeyboardInterrupt):  # it would wait for ever
        next(consumed())


class InterruptsClosing(KeptStates):
    """Interrupts the thread that waits for the iteration a second time, while the job is closed."""

    def __init__(self):
        super().__init__()
        self.caller, self.closed = threading.get_ident(), False

    async def close(self):
        signal.pthread_kill(self.caller, signal.SIGINT)
        await asyncio.sleep(0.05)
        self.closed = True


def test_a_second_keyboard_interrupt_does_not_break_off_the_closing(monkeypatch):
    install(monkeypatch, {"a": InterruptsOnce()})
    store = InterruptsClosing()

    with pytest.raises(KeyboardInterrupt):
        next(consumed(state_store=store))

    assert store.closed


def test_an_iteration_that_never_begins_leaves_nothing(orders):
    consumed()


def test_bad_input_is_an_error_before_the_first_record(orders):
    with pytest.raises(rp.ConfigurationError, match="max_records"):
        consumed(max_records=-1)
    with pytest.raises(rp.ConfigurationError, match="no-such"):
        rp.consume(["orders"], {"flink.stream.recordpublisher": "no-such"})


@pytest.mark.parametrize(
    "bound", [{"stop_at_tip": True}, {"max_records": 3}, {"max_bytes": 3}, {"until_event_time": 9 * 10**12}]
)
def test_without_a_start_a_bounded_read_begins_at_the_oldest_record(bound):
    clock = SteppingClock(SystemClock())
    with serve_in_thread(streams={"orders": 1}, clock=clock) as served:
        for number in range(3):
            served.call(served.endpoint.stream("orders").put, b"%d" % number, "key")
        clock.step(2_000)  # LATEST means the server's time, which has whole seconds
        properties = served.endpoint.properties()
        start = "flink.stream.initpos"

        assert start not in properties
        bound = {**bound, "max_time": 60} | ({"stop_at_tip": True} if "until_event_time" in bound else {})
        assert [record.data for record in rp.consume("orders", properties, **bound)] == [b"0", b"1", b"2"]
        assert list(rp.consume("orders", {**properties, start: "LATEST"}, stop_at_tip=True)) == []
        assert (
            list(rp.consume("orders", properties, max_time=1)) == []
        )  # Only with a time, the read is one of new records.


async def test_stream_gives_whole_batches(orders):
    sizes = [len(batch) async for batch in rp.stream("orders", PROPERTIES, stop_at_tip=True)]

    assert sizes == [3, 3, 3, 1]


async def test_a_batch_of_a_stream_counts_when_the_next_is_requested(orders):
    store = KeptStates()
    async with aclosing(rp.stream("orders", PROPERTIES, state_store=store)) as batches:
        await anext(batches)
        await anext(batches)

    assert store.position == "2"


async def test_cancelling_a_stream_leaves_no_task(monkeypatch):
    install(monkeypatch, {"a": []})
    batches = rp.stream("orders", PROPERTIES)
    waiting = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_error_of_the_body_of_a_stream_is_raised(orders):
    async def body():
        async with aclosing(rp.stream("orders", PROPERTIES)) as batches:
            async for _ in batches:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await body()


async def test_consume_gives_its_records_to_async_for_too(orders):
    assert [record.data async for record in consumed(max_records=3)] == [b"0", b"1", b"2"]


async def test_records_after_a_cancelled_wait_are_an_error_and_no_end(monkeypatch):
    """Python ends a generator whose wait is cancelled, so the next wait would look as if every record had been read."""
    install(monkeypatch, {"a": [b"first"]})
    records = consumed()
    assert (await anext(records)).value == b"first"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await anext(records)

    with pytest.raises(rp.RecordPublisherError, match="a wait for the next record was cancelled"):
        await anext(records, None)


async def test_an_async_iteration_over_records_can_be_left_early(orders):
    async with aclosing(consumed()) as records:
        async for record in records:
            assert record.data == b"0"
            break

    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
