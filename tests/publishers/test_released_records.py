"""P6: a batch that its consumer has let go of is held by nobody, neither while the consumer waits for room nor until the next read."""

import asyncio
import weakref

import pytest

from recordpublisher.testing.virtual_time import run_virtual

from fakes.fanout_harness import FanOutHarness
from fakes.fanout_service import event, shard_end
from fakes.polling_shard import FakeShard, published


class Forgetful:
    """Lets go of a batch at once, and answers a second later."""

    def __init__(self):
        self.seen, self.held = [], []

    def __call__(self, batch):
        self.held += [each() is not None for each in self.seen]
        self.seen.append(weakref.ref(batch))
        return self._answer(batch.read_position)

    async def _answer(self, position):
        await asyncio.sleep(1)
        self.held.append(self.seen[-1]() is not None)
        return position


def polled(consumer):
    fake = FakeShard(b"1", b"2", b"3", closed=True)
    fake.page = 1
    run_virtual(published(fake, consumer))


def pushed(consumer):
    FanOutHarness((event(1, 2), event(3), shard_end())).read_all(consumer=consumer)


@pytest.mark.parametrize("read", [polled, pushed])
def test_no_publisher_holds_it(read):
    consumer = Forgetful()
    read(consumer)
    assert len(consumer.seen) == 3
    assert not any(consumer.held)
