"""The producer, against the embedded endpoint."""

from recordpublisher.local import serve_in_thread

from outage.producer import Producer


def test_events_go_into_their_shards_when_they_are_due():
    with serve_in_thread(streams={"orders": 3}) as endpoint:
        producer = Producer(endpoint.url, "orders", 3)
        producer.plan((number / 10, number % 3, number) for number in range(9))
        producer.send_due(0.45)
        assert dict(producer.sent) == {f"orders/shardId-{number:012d}": count for number, count in enumerate((2, 2, 1))}
        assert not producer.has_finished

        producer.send_due(9.0)
        assert dict(producer.sent) == {f"orders/shardId-{number:012d}": 3 for number in range(3)}
        assert producer.has_finished
