"""P6: publishers keep no reference to a batch that its consumer has released, neither while the consumer waits nor until the next read."""

import asyncio
import weakref

import pytest

from recordpublisher.testing.virtual_time import run_virtual

from fakes.fanout_harness import FanOutHarness
from fakes.fanout_service import event, shard_end
from fakes.polling_shard import FakeShard, published


class ReleasingConsumer:
    """Releases a batch at once, and returns its position a second later."""

    def __init__(self):
        self.seen, self.held = [], []

    def __call__(self, batch):
        self.held += [each() is not None for each in self.seen]
        self.seen.append(weakref.ref(batch))
        return self._return_later(batch.read_position)

    async def _return_later(self, position):
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
def test_publishers_hold_no_released_batch(read):
    consumer = ReleasingConsumer()
    read(consumer)
    assert len(consumer.seen) == 3
    assert not any(consumer.held)
