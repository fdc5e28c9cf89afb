"""S7: a poisoned record fails the job and is named, or is skipped and counted; position and order are unchanged."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.consumer.bad_records import OnPoison, PoisonPolicy
from recordpublisher.publishers.errors import DeserializationError
from recordpublisher.publishers.shard_metrics import ShardMetrics

from fakes.batches import batch


def numbers(given):
    return replace(given, values=[int(data) for data in given.data], event_times=[int(data) for data in given.data])


def test_a_batch_without_poisoned_records_is_decorated_once():
    calls = []
    PoisonPolicy(OnPoison.SKIP, ShardMetrics()).apply(
        batch(b"1", b"2"), lambda part: calls.append(len(part)) or numbers(part)
    )

    assert calls == [2]


def test_the_error_names_shard_record_and_reason():
    with pytest.raises(DeserializationError, match="invalid literal") as raised:
        PoisonPolicy(OnPoison.FAIL, ShardMetrics()).apply(batch(b"1", b"x", b"y"), numbers)

    assert (raised.value.stream, raised.value.shard_id, raised.value.sequence_number) == ("orders", "shardId-0", "2")
    assert isinstance(raised.value.__cause__, ValueError)


@given(st.lists(st.sampled_from([b"1", b"22", b"poison"]), max_size=8))
def test_skipping_drops_exactly_the_poisoned_and_keeps_the_position(payloads):
    metrics, whole = ShardMetrics(), batch(*payloads)
    done = PoisonPolicy(OnPoison.SKIP, metrics).apply(whole, numbers)

    assert list(done.data) == [data for data in payloads if data != b"poison"]
    assert list(done.value_column) == [int(data) for data in done.data]
    assert list(done.event_time_column) == [int(data) for data in done.data]
    assert metrics.skipped_records == payloads.count(b"poison")
    assert done.read_position == whole.read_position


def test_bytes_stay_bytes_when_only_times_fail():
    def times(part):
        return replace(part, event_times=[int(data) for data in part.data])

    done = PoisonPolicy(OnPoison.SKIP, ShardMetrics()).apply(batch(b"1", b"x"), times)

    assert done.values is None
    assert done.value_column == [b"1"]
