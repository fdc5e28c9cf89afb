"""Decompressed payloads count with their own size, so that queues stay bounded (P6)."""

from dataclasses import replace

from recordpublisher.consumer import shard_consumer
from recordpublisher.consumer.deserialization import TextDeserializer
from recordpublisher.consumer.event_time import ArrivalTimestamps
from recordpublisher.consumer.shard_consumer import BatchDecorator
from recordpublisher.consumer.watermark_strategies import ArrivalWatermarks
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics

from fakes.batches import batch


class TenTimes:
    """Stands for decompression: ten times the payload."""

    replaces_data = True

    def decompress(self, payloads):
        return [payload * 10 for payload in payloads]


def decorator():
    return BatchDecorator(
        TextDeserializer(),
        ArrivalTimestamps(),
        ArrivalWatermarks(Properties({})),
        ShardMetrics(),
        on_poison=OnBadRecord.SKIP,
        future_limit_ms=-1,
        decompressor=TenTimes(),
    )


def decorated(*payloads):
    return decorator().decorate(batch(*payloads))


def test_a_batch_counts_the_bytes_of_its_decompressed_payloads():
    assert decorated(b"a", b"bb").raw_bytes == 30


def test_so_does_a_batch_from_which_a_record_was_removed():
    whole = decorated(b"a", b"\xff", b"bb")

    assert (whole.data, whole.raw_bytes) == ([b"a" * 10, b"b" * 20], 30)


def test_a_small_response_is_decompressed_in_parts(monkeypatch):
    monkeypatch.setattr(shard_consumer, "PART_BYTES", 50)
    whole = replace(batch(*[b"abc"] * 6), read_position=SequenceNumber("6"), millis_behind_latest=0)
    parts = list(decorator().decorated_parts(whole))
    assert [(len(part), part.raw_bytes) for part in parts] == [(2, 60), (2, 60), (2, 60)]
    assert [part.read_position for part in parts] == [SequenceNumber(number) for number in "246"]
    assert [part.millis_behind_latest for part in parts] == [None, None, 0]  # only the last is the end of what was read


def test_a_part_of_a_response_is_as_far_behind_as_its_last_record(monkeypatch):
    monkeypatch.setattr(shard_consumer, "PART_BYTES", 50)
    records = [UserRecord(b"abc", str(number), float(number)) for number in range(1, 5)]
    parts = list(decorator().decorated_parts(replace(batch(b"a"), records=records, millis_behind_latest=0)))
    assert [part.millis_behind_latest for part in parts] == [2000, 0]


def test_a_part_is_decompressed_when_it_is_asked_for(monkeypatch):
    asked = []

    class Counting(TenTimes):
        def decompress(self, payloads):
            asked.extend(payloads)
            return super().decompress(payloads)

    monkeypatch.setattr(shard_consumer, "PART_BYTES", 10)
    decorating = BatchDecorator(
        TextDeserializer(),
        ArrivalTimestamps(),
        ArrivalWatermarks(Properties({})),
        ShardMetrics(),
        on_poison=OnBadRecord.SKIP,
        future_limit_ms=-1,
        decompressor=Counting(),
    )
    parts = decorating.decorated_parts(batch(b"a", b"b", b"c"))
    next(parts)
    assert asked == [b"a"]


def test_a_payload_that_cannot_be_decompressed_is_one_poisoned_record_in_its_place(monkeypatch):
    class Refusing(TenTimes):
        def decompress(self, payloads):
            if b"bad" in payloads:
                raise ValueError("cut off")
            return super().decompress(payloads)

    decorating = BatchDecorator(
        TextDeserializer(),
        ArrivalTimestamps(),
        ArrivalWatermarks(Properties({})),
        ShardMetrics(),
        on_poison=OnBadRecord.DEAD_LETTER,
        future_limit_ms=-1,
        decompressor=Refusing(),
    )
    parts = list(decorating.decorated_parts(batch(b"a", b"bad", b"c")))
    assert [part.data for part in parts] == [[b"a" * 10], [], [b"c" * 10]]
    assert [poisoned.record.data for part in parts for poisoned in part.poisoned] == [b"bad"]
