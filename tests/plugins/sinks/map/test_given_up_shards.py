"""MapSink handles of a shard that is given up what it has begun, and what is before that; the rest is left to the next reader."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.testing import VirtualClock, run_virtual

from .map_jobs import Running, keyed, settled
from fakes.batches import batch

SHARD = "orders/shardId-0"
LAST = Checkpoint({"shards": {SHARD: {"position": "9", "ended": True, "lease": 1}}}, True, (SHARD,))


def given_up(batches, finished, **options):
    """Give the shard up, then let the handlers of these payloads end. Returns what had begun, the position, and whether it is given up."""

    async def job():
        handler = Running()
        sink = rp.MapSink(handler, **options)
        await sink.open(SinkContext())
        for each in batches:
            await sink.write(each)
        await settled()
        await sink.flush(LAST)
        for data in finished:
            handler.open[data].set_result(None)
            await settled()
        state = await sink.flush(LAST)
        result = handler.begun, state["shards"].get(SHARD, {}).get("position"), sink.has_given_up(SHARD)
        metrics = sink.metrics()
        await sink.close()
        return *result, metrics["outstanding"]

    return run_virtual(job())


@pytest.mark.parametrize("ordering", ["NONE", "PER_KEY"])
def test_what_no_handler_has_begun_is_dropped_and_the_position_is_before_it(ordering):
    result = given_up([keyed(*"abcd")], [b"0", b"1"], ordering=ordering, concurrency=2)
    assert result == ([b"0", b"1"], "2", True, 0)


def test_it_is_not_given_up_while_a_handler_runs():
    assert given_up([keyed(*"abcd")], [b"1"], concurrency=2) == ([b"0", b"1"], None, False, 1)


def test_what_waits_before_the_last_one_that_has_begun_is_still_handled():
    begun, position, is_given_up, _ = given_up([keyed("a", "a", "b", "a", "b")], [b"0", b"1", b"2"], concurrency=64)
    assert (begun, position, is_given_up) == ([b"0", b"2", b"1"], "3", True)


def test_a_shard_of_which_nothing_has_begun_is_given_up_at_once():
    async def job():
        sink = rp.MapSink(Running())
        await sink.open(SinkContext(may_write=lambda: False))
        await sink.write(keyed("a", "b"))
        state = await sink.flush(LAST)
        result = state["shards"], sink.has_given_up(SHARD), sink.metrics()["heldBytes"]
        await sink.close()
        return result

    assert run_virtual(job()) == ({}, True, 0)


def test_a_shard_that_is_handled_as_a_whole_has_its_newest_state():
    begun, position, is_given_up, _ = given_up([keyed("a", "b")], [b"0", b"1"])
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
        await sink.write(keyed("a", "b"))
        await settled()
        state = await sink.flush(Checkpoint(LAST.state, False, (SHARD,)))
        await asyncio.sleep(60)
        await sink.close()
        return calls, state["shards"][SHARD]["position"]

    assert run_virtual(job()) == ([b"0", b"0"], "1")


def retried_without_end(*batches, state=LAST.state, stopped=(SHARD,)):
    """Give shards up while the handler of payload 1 fails again and again. Returns the state, the calls and what is outstanding."""

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
        await settled()
        began = asyncio.get_running_loop().time()
        found = await sink.flush(Checkpoint(state, True, stopped))
        while sink.metrics()["outstanding"] and asyncio.get_running_loop().time() - began < 20:
            await asyncio.sleep(1)
            found = await sink.flush(Checkpoint(state, True, stopped))
        result = found["shards"], calls, sink.metrics()["outstanding"]
        await sink.close()
        return result

    return run_virtual(job())


def test_a_record_that_fails_again_and_again_is_left_to_the_next_reader_soon_after_its_shard_was_given_up():
    shards, calls, outstanding = retried_without_end(keyed(*"abcd"))
    assert (shards[SHARD]["position"], outstanding) == ("1", 0)
    assert calls.count(b"1") > 2, "it is handled again for some seconds"


def test_batches_behind_it_that_were_handled_are_left_with_it():
    shards, calls, _ = retried_without_end(keyed(*"abcd"), batch(b"8", b"9"))
    assert (shards[SHARD]["position"], b"9" in calls) == ("1", True)


def test_it_is_not_left_while_a_child_of_its_shard_is_read_on():
    child = {"position": "9", "parents": ["shardId-0"]}
    state = {"shards": {**LAST.state["shards"], "orders/shardId-1": child}}
    batches = keyed(*"abcd"), batch(b"8", b"9", shard_id="shardId-1")
    assert retried_without_end(*batches, state=state)[2] == 1
    shards, _, outstanding = retried_without_end(*batches, state=state, stopped=(SHARD, "orders/shardId-1"))
    assert ({key: entry["position"] for key, entry in shards.items()}, outstanding) == ({SHARD: "1"}, 0)
