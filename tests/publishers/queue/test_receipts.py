"""What a process holds of a queue: newest handles, duplicates of a bounded window, and how many receivers call."""

import asyncio

from recordpublisher.publishers.queue.client import ReceivedRecord
from recordpublisher.publishers.queue.receipts import REMEMBERED, Receipts, ReceiverTurns
from recordpublisher.testing.virtual_time import run_virtual


def received(number: str, receipt: int = 1) -> ReceivedRecord:
    return ReceivedRecord(f"{number}/{receipt}", number, b"", 0.0, receipt, None)


def test_of_a_duplicate_in_flight_the_newest_handle_is_kept_and_the_record_is_not_passed_on():
    receipts = Receipts(drops=False)

    assert receipts.take(received("a")) == (False, True)
    assert receipts.take(received("a", 2)) == (True, False)
    assert receipts.handle_of("a") == "a/2"


def test_a_duplicate_of_an_acknowledged_record_is_passed_on_unless_it_is_dropped():
    for drops in (False, True):
        receipts = Receipts(drops)
        receipts.take(received("a"))
        receipts.acknowledged("a")

        assert receipts.take(received("a", 2)) == (True, not drops)
        assert receipts.handle_of("a") == (None if drops else "a/2")


def test_what_was_given_up_is_no_duplicate():
    receipts = Receipts(drops=True)
    receipts.take(received("a"))

    assert receipts.give_up("a") == "a/1"
    assert receipts.take(received("a", 2)) == (False, True)


def test_the_window_is_bounded():
    receipts = Receipts(drops=True)
    for number in range(REMEMBERED + 1):
        receipts.acknowledged(str(number))

    assert receipts.take(received("0")) == (False, True)
    assert receipts.take(received(str(REMEMBERED))) == (True, False)


def test_ten_full_receives_ask_for_one_more_receiver_and_an_empty_one_for_one_less():
    async def test():
        turns = ReceiverTurns()
        for key in "abc":
            turns.begin(key)
        second = asyncio.create_task(turns.wait("b"))
        await asyncio.sleep(1)
        assert await turns.wait("a")
        assert not second.done()
        for count in (10,) * 9 + (3,) + (10,) * 9:
            turns.received(count)
        await asyncio.sleep(1)
        assert not second.done()
        turns.received(10)
        assert await second
        turns.received(0)
        third = asyncio.create_task(turns.wait("b"))
        await asyncio.sleep(1)
        turns.received(3)
        await asyncio.sleep(1)
        assert not third.done()
        turns.received(0)
        assert not await third  # another one found nothing

    run_virtual(test())


def test_when_a_receiver_ends_another_one_takes_its_place():
    async def test():
        turns = ReceiverTurns()
        turns.begin("a")
        turns.begin("b")
        waiting = asyncio.create_task(turns.wait("b"))
        await asyncio.sleep(1)
        turns.end("a")

        assert await waiting

    run_virtual(test())
