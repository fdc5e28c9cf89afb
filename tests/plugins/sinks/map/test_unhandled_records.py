"""Which records `MapSink` handles in which order, and which positions its checkpoints get."""

import asyncio
import random
import threading
import time
from dataclasses import replace

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.plugins.sinks.map.key_order import RETRY_SECONDS, ShardLineage
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing import EPOCH_MS, VirtualClock, run_virtual

from .map_jobs import WaitingHandler, batch_of_keys, open_and_write, settle
from fakes.batches import batch

# --- Order: with PER_SHARD a shard waits for its ancestors ---


A, OTHER = Shard("s", "a"), Shard("s", "other")
B = Shard("s", "b", ("a",))
C = Shard("s", "c", ("b",))


def state(*shards):
    return {"version": 2, "shards": {shard.key: {"parents": list(shard.parents)} for shard in shards}}


def begun(*known, begins=(), unhandled=("a", "other")):
    lineage = ShardLineage()
    if known:
        lineage.learn(state(*known))
    for shard in begins:
        lineage.unhandled_before(shard, set())
    return lineage.unhandled_before(C, set(unhandled))


def test_a_shard_waits_for_the_ancestor_behind_a_parent_without_records():
    assert begun(A, B, OTHER) == {"a"}


def test_a_shard_waits_for_its_parent_which_waits_for_its_own():
    assert begun(A, B, unhandled=("a", "b")) == {"b"}


def test_a_shard_whose_ancestors_are_not_known_waits_for_all_that_is_unhandled_of_its_stream():
    assert begun(A, OTHER) == {"a", "other"}
    assert begun() == {"a", "other"}


def test_a_shard_that_a_checkpoint_had_without_its_parents_waits_for_nothing():
    assert begun(C, OTHER) == set()


def test_a_parent_that_has_begun_and_is_handled_had_waited_for_its_own():
    assert begun(begins=(B,), unhandled=("other",)) == set()


def test_a_shard_that_has_begun_waits_for_nothing_more():
    assert begun(begins=(C,)) == set()


@pytest.mark.parametrize(("has_checkpoint", "waits_for"), [(True, [b"first"]), (False, [b"first", b"of another"])])
def test_records_behind_a_shard_without_records_are_handled_after_those_before_it(has_checkpoint, waits_for):
    async def job():
        handler, begun = WaitingHandler(), []
        sink = rp.MapSink(handler, ordering="PER_SHARD")
        await sink.open(SinkContext())
        await sink.write(batch_of(A, b"first"))
        await sink.write(batch_of(OTHER, b"of another"))
        if has_checkpoint:
            await sink.flush(Checkpoint(state(A, B, OTHER), may_be_partial=True))
        await sink.write(batch_of(C, b"second"))
        await settle()
        for data in waits_for:
            begun.append(b"second" in handler.begun)
            handler.open[data].set_result(None)
            await settle()
        begun.append(b"second" in handler.begun)
        await sink.close()
        return begun

    assert run_virtual(job()) == [*(False for _ in waits_for), True]


def batch_of(shard, data):
    return RecordBatch(shard, [UserRecord(data, "1", 1_700_000_000.0, "key")], raw_count=1, raw_bytes=1)


@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY", "PER_SHARD"])
@pytest.mark.usefixtures("no_garbage_collection")
def test_a_lineage_of_300_splits_and_merges_is_walked_once(ordering):
    """Check that a walk visits each shard once, although 2^300 paths lead to the first shard."""
    shards = [Shard("orders", "m0")]
    for cycle in range(300):
        left, right = (Shard("orders", f"{side}{cycle}", (f"m{cycle}",)) for side in "lr")
        shards += [left, right, Shard("orders", f"m{cycle + 1}", (left.shard_id, right.shard_id))]

    async def job():
        sink = rp.MapSink(WaitingHandler(), ordering=ordering)
        await sink.open(SinkContext())
        began = time.thread_time()
        await sink.write(batch_of(shards[0], b"first"))
        stored = await sink.flush(Checkpoint(state(*shards), may_be_partial=True))
        await sink.write(batch_of(shards[-1], b"last"))
        seconds = time.thread_time() - began
        await sink.close()
        return seconds, stored["shards"]

    seconds, stored = run_virtual(job())
    assert seconds < 0.2
    assert stored == {}  # the first record of the oldest shard is not handled


# --- Positions: a checkpoint gets the one before the first record that is not handled ---


ENTRY = {"start": "TRIM_HORIZON", "position": "9", "continuation": "77", "watermark": 99, "ended": True, "lease": 4}


def with_watermarks(batch):
    return replace(batch, read_position=SequenceNumber("9"), watermarks=list(range(10, 10 + len(batch))))


def stored_after(batches, handled, *, ordering="NONE", entry=ENTRY):
    """Return the state of the shard in a checkpoint after these payloads are handled."""

    async def job():
        handler = WaitingHandler()
        sink = rp.MapSink(handler, ordering=ordering)
        await sink.open(SinkContext())
        for each in batches:
            await sink.write(each)
        await settle()
        for data in handled:
            handler.open[data].set_result(None)
            await settle()
        state = await sink.flush(Checkpoint({"shards": {"orders/shardId-0": entry}}, may_be_partial=True))
        await sink.close()
        return state["shards"].get("orders/shardId-0")

    return run_virtual(job())


def test_the_position_is_before_the_first_record_that_is_not_handled():
    entry = stored_after([with_watermarks(batch_of_keys("a", "b", "c", "d"))], [b"0", b"1", b"3"])
    assert entry == {"start": "TRIM_HORIZON", "lease": 4, "position": "2", "watermark": 11, "arrivalMs": EPOCH_MS + 500}


@pytest.mark.parametrize("ordering", ["PER_KEY", "PER_SHARD"])
def test_the_position_is_the_same_in_every_ordering(ordering):
    entry = stored_after([with_watermarks(batch_of_keys("a", "a", "a"))], [b"0", b"1"], ordering=ordering)
    assert entry["position"] == "2"


def test_nothing_is_stored_before_the_first_record_is_handled():
    assert stored_after([with_watermarks(batch_of_keys("a", "b"))], [b"1"]) is None


def test_a_position_within_an_aggregate_has_the_sub_sequence_number():
    batch = batch_of_keys("a", "b", "c")
    aggregate = [
        rp.UserRecord(record.data, "5", record.arrival, record.partition_key, None, number)
        for number, record in enumerate(batch.records)
    ]
    entry = stored_after([with_watermarks(replace(batch, records=aggregate))], [b"0", b"1"])
    assert ShardState.from_json(entry).position == SequenceNumber("5", 1)


def test_the_position_is_the_end_of_the_last_handled_batch_while_the_next_is_not_begun():
    first = replace(with_watermarks(batch_of_keys("a", "b")), read_position=SequenceNumber("2"))
    second = with_watermarks(batch_of_keys("c"))
    second = replace(second, records=[rp.UserRecord(b"later", "3", second.records[0].arrival, "c")])
    entry = stored_after([first, second], [b"0", b"1"])
    assert (entry["position"], entry["watermark"]) == ("2", 11)


def test_how_far_an_ended_shard_was_known_is_not_stored_with_an_earlier_position():  # S5
    """It is later than the records that are not handled: after a long outage nothing would tell that they are lost."""
    entry = stored_after(
        [with_watermarks(batch_of_keys("a", "b"))], [b"0"], entry=ENTRY | {"seenMs": EPOCH_MS + 90_000}
    )
    assert ShardState.from_json(entry).seen_ms is None
    assert entry["arrivalMs"] < EPOCH_MS + 90_000


def test_the_whole_state_is_stored_when_everything_is_handled():
    assert stored_after([with_watermarks(batch_of_keys("a", "b"))], [b"0", b"1"]) == ENTRY


async def test_a_job_that_ends_at_a_poison_record_handles_the_records_before_it_once(tmp_path, monkeypatch):
    from fakes.memory_streams import PROPERTIES, install

    install(monkeypatch, {"a": [b"%d" % number for number in range(100)]})
    calls = []

    async def handle(record):
        calls.append(record.data)
        await asyncio.sleep(0.002)
        if record.data == b"90":
            raise ValueError("poison")

    given = {
        **PROPERTIES,
        "flink.job.name": "job",
        "flink.state.checkpoint.interval": "20ms",
        "flink.state.uri": tmp_path,
    }
    for _ in range(3):  # a supervisor starts the job again
        sink = rp.MapSink(handle, ordering="PER_SHARD", retries=0)
        async with rp.DataFetcher(["orders"], {**given, "flink.state.uri": str(tmp_path)}, sink=sink) as fetcher:
            with pytest.raises(rp.SinkError):
                await fetcher.run()
    assert len(calls) < 160


# --- Released shards: what a handler has begun is handled, the rest is left to the next reader ---


SHARD = "orders/shardId-0"
LAST = Checkpoint({"shards": {SHARD: {"position": "9", "ended": True, "lease": 1}}}, True, (SHARD,))


def released(batches, finished, **options):
    """Release the shard, then let the handlers of these payloads end.

    Return the begun payloads, the position, whether the sink has given the shard up, and the number of outstanding records.
    """

    async def job():
        handler = WaitingHandler()
        sink = rp.MapSink(handler, **options)
        await sink.open(SinkContext())
        for each in batches:
            await sink.write(each)
        await settle()
        await sink.flush(LAST)
        for data in finished:
            handler.open[data].set_result(None)
            await settle()
        state = await sink.flush(LAST)
        result = handler.begun, state["shards"].get(SHARD, {}).get("position"), sink.has_stopped(SHARD)
        metrics = sink.metrics()
        await sink.close()
        return *result, metrics["outstanding"]

    return run_virtual(job())


@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY"])
def test_what_no_handler_has_begun_is_dropped_and_the_position_is_before_it(ordering):
    result = released([batch_of_keys(*"abcd")], [b"0", b"1"], ordering=ordering, concurrency=2)
    assert result == ([b"0", b"1"], "2", True, 0)


def test_a_shard_is_not_given_up_while_a_handler_runs():
    assert released([batch_of_keys(*"abcd")], [b"1"], concurrency=2) == ([b"0", b"1"], None, False, 1)


def test_records_before_the_last_begun_record_are_still_handled():
    begun, position, is_given_up, _ = released(
        [batch_of_keys("a", "a", "b", "a", "b")], [b"0", b"1", b"2"], concurrency=64
    )
    assert (begun, position, is_given_up) == ([b"0", b"2", b"1"], "3", True)


def test_a_shard_of_which_nothing_has_begun_is_given_up_at_once():
    async def job():
        sink = rp.MapSink(WaitingHandler())
        await sink.open(SinkContext(may_write=lambda: False))
        await sink.write(batch_of_keys("a", "b"))
        state = await sink.flush(LAST)
        result = state["shards"], sink.has_stopped(SHARD), sink.metrics()["heldBytes"]
        await sink.close()
        return result

    assert run_virtual(job()) == ({}, True, 0)


def test_a_shard_that_is_handled_as_a_whole_has_its_newest_state():
    begun, position, is_given_up, _ = released([batch_of_keys("a", "b")], [b"0", b"1"])
    assert (begun, position, is_given_up) == ([b"0", b"1"], "9", False)


def test_a_record_that_waits_for_a_retry_is_handled_before_the_shard_is_given_up():
    async def job():
        calls = []

        async def handle(record):
            calls.append(record.data)
            if len(calls) == 1:
                raise ValueError("once")

        sink = rp.MapSink(handle, concurrency=1, ordering="PER_SHARD")
        await sink.open(SinkContext())
        await sink.write(batch_of_keys("a", "b"))
        await settle()
        state = await sink.flush(Checkpoint(LAST.state, False, (SHARD,)))
        await asyncio.sleep(60)
        await sink.close()
        return calls, state["shards"][SHARD]["position"]

    assert run_virtual(job()) == ([b"0", b"0"], "1")


def test_the_log_says_what_the_next_reader_handles_again_behind_a_record_that_fails(caplog):
    async def job():
        async def handle(record):
            if record.data == b"1":
                raise ValueError("away")

        sink = rp.MapSink(handle, retry_for="1h", clock=VirtualClock())
        await sink.open(SinkContext())
        await sink.write(batch_of_keys(*"abcd"))
        await settle()
        while sink.metrics()["outstanding"]:
            await sink.flush(Checkpoint(LAST.state, True, (SHARD,)))
            await asyncio.sleep(0.1)
        await sink.close()
        return sink.metrics()["left"]

    assert run_virtual(job()) == 1
    (line,) = [line for line in caplog.messages if "after this process has released the shard" in line]
    assert line.startswith(f"record 2 of {SHARD} still fails ")
    assert line.endswith("handles again 2 records that came after it and were handled here")


def test_a_stop_does_not_wait_for_the_long_pause_before_a_retry(caplog):
    async def job():
        async def handle(record):
            raise ValueError("away")

        sink = rp.MapSink(handle, retry_for="1h", clock=VirtualClock())
        await sink.open(SinkContext())
        await sink.write(batch_of_keys("a", "b", "c"))
        await asyncio.sleep(300)  # The pauses are up to 10 s long now.
        began = asyncio.get_running_loop().time()
        while sink.metrics()["outstanding"]:
            state = await sink.flush(Checkpoint(LAST.state, True, (SHARD,)))
            await asyncio.sleep(0.1)
        await sink.close()
        return asyncio.get_running_loop().time() - began, state["shards"]

    for seed in range(10):
        random.seed(seed)
        caplog.clear()
        seconds, shards = run_virtual(job())
        assert (seconds <= RETRY_SECONDS + 0.2, shards) == (True, {})
        left = [line for line in caplog.records if "still fails after" in line.getMessage()]
        assert len([line for line in left if line.levelname == "WARNING"]) == 1, "one for each shard"


def test_a_stop_does_not_wait_for_the_pause_that_a_service_wants_for_a_record_of_a_shard_released_before():
    child = "orders/shardId-1"
    state = {"shards": {**LAST.state["shards"], child: {"position": "9", "parents": ["shardId-0"]}}}

    async def job():
        loop = asyncio.get_running_loop()

        async def handle(record):
            if record.data == b"0":
                raise rp.TransientError("POST /pay", "429", "slow down", retry_after=900)

        sink = rp.MapSink(handle, retries=1000, clock=VirtualClock())
        await sink.open(SinkContext())
        await sink.write(batch_of_keys("a"))
        await sink.write(batch(b"8", shard_id="shardId-1"))
        await settle()
        await sink.flush(Checkpoint(state, True, (SHARD,)))
        await asyncio.sleep(60)
        began = loop.time()
        while sink.metrics()["outstanding"]:
            await sink.flush(Checkpoint(state, True, (SHARD, child)))
            await asyncio.sleep(0.1)
        await sink.close()
        return loop.time() - began

    assert run_virtual(job()) <= 10.2


def retried_without_end(*batches, state=LAST.state, stopped=(SHARD,)):
    """Release shards while the handler of payload 1 always fails. Return the states, the calls and the number of outstanding records."""

    async def job():
        calls = []

        async def handle(record):
            calls.append(record.data)
            if record.data == b"1":
                raise ValueError("always")

        sink = rp.MapSink(handle, retries=100_000, clock=VirtualClock())
        await sink.open(SinkContext())
        for each in batches:
            await sink.write(each)
        await settle()
        began = asyncio.get_running_loop().time()
        found = await sink.flush(Checkpoint(state, True, stopped))
        while sink.metrics()["outstanding"] and asyncio.get_running_loop().time() - began < 20:
            await asyncio.sleep(1)
            found = await sink.flush(Checkpoint(state, True, stopped))
        result = found["shards"], calls, sink.metrics()["outstanding"]
        metrics = sink.metrics()
        assert metrics["handled"] + metrics["left"] + metrics["outstanding"] == sum(
            map(len, batches)
        )  # nothing is nowhere
        await sink.close()
        return result

    return run_virtual(job())


def test_a_record_that_fails_again_and_again_is_left_to_the_next_reader_soon_after_its_shard_was_released():
    shards, calls, outstanding = retried_without_end(batch_of_keys(*"abcd"))
    assert (shards[SHARD]["position"], outstanding) == ("1", 0)
    assert calls.count(b"1") > 2, "the record is handled again for some seconds"


def test_handled_batches_behind_a_failed_record_are_left_with_it():
    shards, calls, _ = retried_without_end(batch_of_keys(*"abcd"), batch(b"8", b"9"))
    assert (shards[SHARD]["position"], b"9" in calls) == ("1", True)


def test_a_failed_record_is_not_left_while_a_child_of_its_shard_is_read_here():
    child = {"position": "9", "parents": ["shardId-0"]}
    state = {"shards": {**LAST.state["shards"], "orders/shardId-1": child}}
    batches = batch_of_keys(*"abcd"), batch(b"8", b"9", shard_id="shardId-1")
    assert retried_without_end(*batches, state=state)[2] == 1
    shards, _, outstanding = retried_without_end(*batches, state=state, stopped=(SHARD, "orders/shardId-1"))
    assert ({key: entry["position"] for key, entry in shards.items()}, outstanding) == ({SHARD: "1"}, 0)


# --- Revoked shards: no handler is called for them, nor while the job may not write (E4) ---


MINE, LOST = "orders/mine", "orders/lost"


class Permission:
    is_given = True

    def __call__(self):
        return self.is_given


def of_shard(shard_id, *payloads):
    return batch(*payloads, shard_id=shard_id)


def test_handlers_wait_for_the_permission_of_the_job():
    async def job():
        handler, permission = WaitingHandler(), Permission()
        permission.is_given = False
        sink = rp.MapSink(handler)
        await open_and_write(sink, batch_of_keys("a", "b"), may_write=permission)
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
        handler = WaitingHandler()
        sink = rp.MapSink(handler, concurrency=1, ordering=ordering)
        await open_and_write(sink, of_shard("lost", b"0", b"1", b"2"), of_shard("mine", b"3"))
        sink.revoked([LOST])
        handler.open[b"0"].set_result(None)
        await settle()
        handler.open[b"3"].set_result(None)
        await sink.flush(Checkpoint({"shards": {MINE: {"position": "1"}}}))
        await sink.close()
        return handler.begun, sink.metrics()

    begun, metrics = run_virtual(job())
    assert begun == [b"0", b"3"]
    assert (metrics["outstanding"], metrics["heldBytes"], metrics["handled"]) == (0, 0, 2)


def test_a_shard_that_is_revoked_while_the_job_may_not_write_holds_nothing():
    async def job():
        sink = rp.MapSink(WaitingHandler())
        await open_and_write(sink, of_shard("lost", b"0", b"1"), may_write=lambda: False)
        sink.revoked([LOST])
        await sink.flush()
        await sink.close()
        return sink.metrics()["outstanding"]

    assert run_virtual(job()) == 0


def test_a_list_that_fails_while_its_shard_is_revoked_is_not_told_as_handled_in_halves(caplog):
    async def job():
        async def handle(records):
            sink.revoked([LOST])
            raise ValueError("no")

        sink = rp.MapSink(handle, batch_size=4, ordering="NONE")
        await open_and_write(sink, of_shard("lost", b"0", b"1"))
        await sink.flush()
        await sink.close()

    run_virtual(job())
    assert "Each half was handled" not in caplog.text


def test_a_failed_record_of_a_revoked_shard_is_not_handled_again():
    async def job():
        begun = []

        async def handle(record):
            begun.append(record.data)
            raise ValueError("no")

        sink = rp.MapSink(handle, ordering="PER_SHARD", retries=1)
        await open_and_write(sink, of_shard("lost", b"0", b"1"))
        sink.revoked([LOST])
        await sink.flush()
        await sink.close()
        return begun

    assert run_virtual(job()) == [b"0"]


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY"])
def test_a_failed_record_of_a_revoked_shard_holds_nothing_during_its_long_pause(ordering, batch_size):
    """Its process may read the shard again at once, and records of the same key would wait behind it."""

    async def job():
        calls, handled = [], []

        async def one(record):
            calls.append(record.data)
            if len(calls) == 1:
                raise rp.TransientError("POST /pay", "429", "slow down", retry_after=900)
            handled.append(record.data)

        async def many(records: list[rp.Record]):
            for record in records:
                await one(record)

        handler = one if batch_size == 1 else many
        sink = rp.MapSink(handler, ordering=ordering, batch_size=batch_size, clock=VirtualClock())
        await open_and_write(sink, of_shard("lost", b"0"))
        await asyncio.sleep(5)
        sink.revoked([LOST])
        held = sink.metrics()["outstanding"], sink.metrics()["heldBytes"]
        await sink.write(of_shard("lost", b"0"))
        await asyncio.sleep(5)
        result = held, sink.metrics()["handled"], sink.metrics()["left"]
        await sink.close()
        return result

    assert run_virtual(job()) == ((0, 0), 1, 1)


def test_a_handler_that_fails_after_its_shard_was_revoked_does_not_fail_the_job():
    async def job():
        handler = WaitingHandler()
        sink = rp.MapSink(handler, retries=0)
        await open_and_write(sink, of_shard("lost", b"0", b"1"))
        sink.revoked([LOST])
        handler.open[b"0"].set_exception(ValueError("no"))
        await sink.flush()
        await sink.close()
        return handler.begun

    assert run_virtual(job()) == [b"0"]


def test_a_write_that_waits_for_room_is_dropped_with_its_shard():
    async def job():
        handler = WaitingHandler()
        sink = rp.MapSink(handler, max_bytes=1)
        await open_and_write(sink, of_shard("mine", b"0"))
        waiting = asyncio.create_task(sink.write(of_shard("lost", b"1")))
        await settle()
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
        await open_and_write(sink, of_shard("lost", b"0", b"1", b"2", b"3"), may_write=permission)
        await asyncio.sleep(60)
        sink.revoked([LOST])
        await sink.flush()
        await sink.close()
        return calls

    assert run_virtual(job()) == [[b"0", b"1", b"2", b"3"]]


def test_a_revoked_shard_that_comes_back_begins_again():
    async def job():
        handler = WaitingHandler()
        sink = rp.MapSink(handler, ordering="PER_SHARD")
        await open_and_write(sink, of_shard("lost", b"0", b"1"))
        sink.revoked([LOST])
        sink.assigned([LOST])
        await sink.write(of_shard("lost", b"2"))
        handler.open[b"0"].set_result(None)
        await settle()
        state = await sink.flush(Checkpoint({"shards": {LOST: {"position": "2"}}}, may_be_partial=True))
        await sink.close()
        return handler.begun, state["shards"]

    assert run_virtual(job()) == ([b"0", b"2"], {})


def test_a_child_that_is_revoked_while_it_waits_for_its_parent_may_come_back():
    async def job():
        handler = WaitingHandler()
        sink = rp.MapSink(handler, ordering="PER_SHARD")
        child = Shard("orders", "child", ("mine",))
        await open_and_write(sink, of_shard("mine", b"0"), replace(of_shard("child", b"1"), shard=child))
        sink.revoked(["orders/child"])
        handler.open[b"0"].set_result(None)
        await settle()
        await sink.write(replace(of_shard("child", b"2"), shard=child))
        await settle()
        await sink.close()
        return handler.begun

    assert run_virtual(job()) == [b"0", b"2"]


# --- The end: a call in a thread outlives its sink ---


@pytest.mark.parametrize("is_mapping", [False, True])
@pytest.mark.parametrize("in_thread", [True, False])
async def test_a_sink_that_is_closed_counts_the_calls_that_still_run(in_thread, is_mapping):
    begun, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def plain(record):
        loop.call_soon_threadsafe(begun.set)
        may_end.wait(60)

    async def cancelled(record):
        begun.set()
        await asyncio.sleep(60)

    one, other = (plain, cancelled) if in_thread else (cancelled, plain)
    sink = rp.MapSink({"orders": one, "other": other} if is_mapping else one)
    await open_and_write(sink, batch_of_keys("k"))
    await begun.wait()
    await sink.close()
    may_end.set()
    assert sink.unfinished().calls == int(in_thread)
