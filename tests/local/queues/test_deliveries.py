"""What a queue remembers of records."""

from recordpublisher.local import ManualClock
from recordpublisher.local.queues.deliveries import Deliveries
from recordpublisher.local.streams.stream import Stream


def test_who_waits_is_not_woken_for_records_that_were_acknowledged():
    stream = Stream("arn:aws:kinesis:us-east-1:000000000000:stream/orders", 1, ManualClock())
    deliveries = Deliveries(stream)
    now = stream.clock.now_ms()
    for number in range(3):
        stream.put(b"x", str(number))
    first, second, third = (deliveries.receive(1, now + number, now, 6, dead=False)[0][0] for number in (10, 20, 30))
    deliveries.acknowledge(first)
    deliveries.hide(second, now + 40)

    assert deliveries.next_timeout_ms() == now + 30
    deliveries.acknowledge(third)
    assert deliveries.next_timeout_ms() == now + 40
