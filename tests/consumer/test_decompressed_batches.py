"""Decompressed payloads count with their own size, so that queues stay bounded (P6)."""

from recordpublisher.consumer.bad_records import OnPoison
from recordpublisher.consumer.deserialization import TextDeserializer
from recordpublisher.consumer.event_time import ArrivalTimestamps
from recordpublisher.consumer.shard_consumer import BatchDecorator
from recordpublisher.consumer.watermark_strategies import ArrivalTime
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shard_metrics import ShardMetrics

from fakes.batches import batch


class TenTimes:
    """Stands for decompression: ten times the payload."""

    def decompress(self, payloads):
        return [payload * 10 for payload in payloads]


def decorated(*payloads):
    decorator = BatchDecorator(
        TextDeserializer(),
        ArrivalTimestamps(),
        ArrivalTime(Properties({})),
        ShardMetrics(),
        on_poison=OnPoison.SKIP,
        future_limit_ms=-1,
        decompressor=TenTimes(),
    )
    return decorator.decorate(batch(*payloads))


def test_a_batch_counts_the_bytes_of_its_decompressed_payloads():
    assert decorated(b"a", b"bb").raw_bytes == 30


def test_so_does_a_batch_from_which_a_record_was_removed():
    whole = decorated(b"a", b"\xff", b"bb")

    assert (whole.data, whole.raw_bytes) == ([b"a" * 10, b"b" * 20], 30)
