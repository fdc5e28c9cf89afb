"""OpenSubscription: one call, whose events are read one at a time, and its time-outs (F1, F5)."""

import asyncio

import pytest

from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.fanout.config import FanOutConfig
from recordpublisher.publishers.fanout.publisher import OpenSubscription
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fanout_service import ARN, EFO, SHARD, SILENCE, Pause, ScriptedPorts, event, network


async def opened(ports):
    config = FanOutConfig.of(Properties(EFO))
    return await OpenSubscription.open(ports, ARN, SHARD, StartingPosition.trim_horizon(), config, VirtualClock())


def test_events_come_in_order_with_none_at_a_clean_end():
    async def main():
        subscription = await opened(ScriptedPorts((event(1), event(2))))
        return [await subscription.next_event() for _ in range(3)]

    assert run_virtual(main()) == [event(1), event(2), None]


def test_nothing_is_read_before_an_event_is_requested():
    ports = ScriptedPorts((event(1), event(2)))

    async def main():
        subscription = await opened(ports)
        await asyncio.sleep(10)
        assert ports.opened[0].read == 0
        await subscription.next_event()
        await asyncio.sleep(10)
        assert ports.opened[0].read == 1

    run_virtual(main())


def test_errors_of_the_stream_are_raised():
    async def main():
        await (await opened(ScriptedPorts((network("BadChecksum"),)))).next_event()

    with pytest.raises(TransientError, match="BadChecksum"):
        run_virtual(main())


class SlowPorts(ScriptedPorts):
    """Subscribes when the test allows it."""

    async def subscribe_to_shard(self, *given):
        self.may_respond = asyncio.get_running_loop().create_future()
        await self.may_respond
        return await super().subscribe_to_shard(*given)


def test_f5_a_subscription_that_was_opened_during_a_suspension_is_used():
    """Otherwise it would be in use for five more seconds."""

    async def main():
        ports, loop = SlowPorts((event(1),)), asyncio.get_running_loop()
        opening = asyncio.create_task(opened(ports))
        await asyncio.sleep(1)
        loop.suspend(600)
        loop.call_soon(
            ports.may_respond.set_result, None
        )  # sockets are read in the iteration of the loop in which timers are due
        return await (await opening).next_event()

    assert run_virtual(main()) == event(1)


def test_the_inactivity_deadline_belongs_to_each_read():
    async def main():
        subscription = await opened(ScriptedPorts((Pause(15), event(1), Pause(15), event(2), SILENCE)))
        await subscription.next_event()
        await subscription.next_event()
        await subscription.next_event()

    with pytest.raises(TransientError, match="no event for 20 s") as caught:
        run_virtual(main())
    assert caught.value.code == "InactivityTimeout"


def test_an_unread_subscription_is_closed_after_a_minute():
    ports = ScriptedPorts((event(1),))

    async def main():
        subscription = await opened(ports)
        with subscription.close_if_unread():
            await asyncio.sleep(59)
        assert not subscription.is_closed_unread
        with subscription.close_if_unread():
            await asyncio.sleep(61)
            assert ports.opened[0].closed == 1
        assert subscription.is_closed_unread
        await subscription.close()

    run_virtual(main())


def test_closing_twice_is_safe():
    ports = ScriptedPorts((event(1),))

    async def main():
        subscription = await opened(ports)
        await subscription.close()
        await subscription.close()

    run_virtual(main())
    assert ports.opened[0].closed >= 1
