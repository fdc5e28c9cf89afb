"""A checkpoint that may be partial does not wait for a slow stream: it gets the newest state of which everything is acknowledged."""

import asyncio

from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.testing import run_virtual

from fakes.batches import batch
from fakes.writable_stream import FakeKinesis, a_sink, now

PAYLOADS = [b"%d" % number for number in range(100)]


def at(position, *shards, partial=True):
    shards = shards or ("orders/a",)
    return Checkpoint({"generation": 1, "shards": {key: {"position": position} for key in shards}}, partial)


def positions(state):
    return {key: entry["position"] for key, entry in state["shards"].items()}


async def opened(fake):
    sink = a_sink(fake)
    await sink.open(SinkContext())
    return sink


def test_records_that_cannot_be_put_are_rejected_together_behind_the_others():
    calls = []

    async def reject_together(rejected, is_logged):
        calls.append([len(record.data[0]) for record, _ in rejected])

    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake)
        await sink.open(SinkContext(reject_together=reject_together))
        await sink.write(batch(b"1", b"x" * 1_500_000, b"2", b"x" * 1_600_000))
        await sink.flush()
        await sink.close()
        return [data for _, data in fake.user_records()]

    assert run_virtual(job()) == [b"1", b"2"]
    assert calls == [[1_500_000, 1_600_000]]


def test_a_stream_that_answers_at_once_confirms_the_newest_state():
    async def job():
        sink = await opened(FakeKinesis())
        await sink.write(batch(*PAYLOADS, shard_id="a"))
        began = now()
        confirmed = await sink.flush(at(1))
        assert now() - began < 0.2
        await sink.close()
        return positions(confirmed)

    assert run_virtual(job()) == {"orders/a": 1}


def test_a_slow_stream_is_waited_for_a_second_and_confirms_an_older_state_until_it_has_everything():
    async def job():
        fake = FakeKinesis()
        sink = await opened(fake)
        assert positions(await sink.flush(at(0, partial=False))) == {"orders/a": 0}
        fake.rate = 20.0
        await sink.write(batch(*PAYLOADS, shard_id="a"))
        found = []
        for position in (1, 2, 3, 4, 5, 6, 7, 8):
            began = now()
            found.append(positions(await sink.flush(at(position)))["orders/a"])
            assert now() - began < 1.1
        await sink.close()
        return found, len(fake.user_records())

    found, written = run_virtual(job())
    assert found[:3] == [0, 0, 0], "100 records at 20 a second take five seconds"
    assert found[-1] == 8
    assert written == 100


def test_records_that_are_written_later_do_not_hold_up_an_earlier_state():
    async def job():
        fake = FakeKinesis()
        sink = await opened(fake)
        await sink.flush(at(0))
        fake.rate = 20.0
        found = []
        for position in range(1, 11):
            await sink.write(batch(*PAYLOADS[:40], shard_id="a"))
            found.append(positions(await sink.flush(at(position)))["orders/a"])
        await sink.close()
        return found

    found = run_virtual(job())
    assert found == sorted(found)
    assert 2 <= found[-1] < 10, "there is always more to write than the stream takes"


def test_a_checkpoint_that_is_not_partial_waits_for_everything_and_no_later_one_goes_back():
    async def job():
        fake = FakeKinesis()
        sink = await opened(fake)
        fake.rate = 20.0
        await sink.write(batch(*PAYLOADS, shard_id="a"))
        early = await sink.flush(at(1))
        whole = await sink.flush(at(2, partial=False))
        await sink.write(batch(*PAYLOADS, shard_id="a"))
        late = await sink.flush(at(3))
        await sink.close()
        return positions(early), positions(whole), positions(late)

    assert run_virtual(job()) == ({}, {"orders/a": 2}, {"orders/a": 2})


def test_no_state_has_a_shard_from_before_it_was_revoked():
    async def job():
        fake = FakeKinesis()
        sink = await opened(fake)
        await sink.flush(at(0, "orders/a", "orders/b"))
        fake.rate = 20.0
        await sink.write(batch(*PAYLOADS, shard_id="a"))
        await sink.write(batch(*PAYLOADS, shard_id="b"))
        await sink.flush(at(1, "orders/a", "orders/b"))
        sink.revoked(["orders/a"])
        await sink.write(batch(*PAYLOADS, shard_id="b"))
        first = positions(await sink.flush(at(2, "orders/b")))
        await asyncio.sleep(5)
        second = positions(await sink.flush(at(3, "orders/b")))
        await sink.close()
        return first, second

    first, second = run_virtual(job())
    assert first == {"orders/b": 0}
    assert second.keys() == {"orders/b"}
    assert second["orders/b"] in (1, 2)


def test_an_outage_holds_up_no_checkpoint_and_after_it_the_newest_state_is_confirmed():
    async def job():
        fake = FakeKinesis()
        sink = await opened(fake)
        await sink.flush(at(0))
        fake.throttle_whole_calls()
        found = []
        for position in range(1, 6):
            await sink.write(batch(b"x", shard_id="a"))
            found.append(positions(await sink.flush(at(position)))["orders/a"])
        fake.fail = None
        await asyncio.sleep(60)
        confirmed = positions(await sink.flush(at(99)))
        await sink.close()
        return set(found), confirmed

    assert run_virtual(job()) == ({0}, {"orders/a": 99})
