"""Shard watermarks: the highest event time minus a bound; never falling; capped for times in the future (W12)."""

from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.consumer.watermark_strategies import (
    ArrivalWatermarks,
    AssignedWatermarks,
    BoundedOutOfOrderness,
    Monotonous,
    cap_future_event_times,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

TIMES = st.integers(-(2**50), 2**50)
BATCHES = st.lists(st.lists(TIMES, max_size=10), max_size=6)


def strategy(bound: int = 0) -> BoundedOutOfOrderness:
    return BoundedOutOfOrderness(Properties({"flink.watermark.outoforderness.millis": bound}))


@given(BATCHES, st.integers(0, 10_000), st.none() | TIMES)
def test_it_is_the_running_maximum_minus_the_bound(batches, bound, start):
    made = strategy(bound)
    if start is not None:
        made.start_at(start)
    seen = [] if start is None else [start + bound]

    for batch in batches:
        watermarks = made.advance(batch)
        assert len(watermarks) == len(batch)
        for time, watermark in zip(batch, watermarks, strict=True):
            seen.append(time)
            assert watermark == max(seen) - bound


@given(BATCHES, st.none() | TIMES)
def test_it_never_falls_from_batch_to_batch(batches, start):
    made = strategy(5)
    if start is not None:
        made.start_at(start)
    flat = ([] if start is None else [start]) + [each for batch in batches for each in made.advance(batch)]

    assert flat == sorted(flat)


def test_a_restored_shard_resumes_at_its_watermark():
    made = strategy(10)
    made.start_at(100)

    assert list(made.advance([50, 111, 60])) == [100, 101, 101]


def test_a_time_far_ahead_of_its_arrival_counts_as_the_arrival():  # W12
    assert cap_future_event_times([10, 5_000, 30], [11, 12, 13], 1_000) == ([10, 12, 30], 1)


def test_a_time_at_the_limit_is_used():  # W12
    assert cap_future_event_times([1_011], [11], 1_000) == ([1_011], 0)


def test_the_limit_can_be_turned_off():  # W12
    assert cap_future_event_times([10**15], [0], -1) == ([10**15], 0)


@given(st.lists(st.tuples(TIMES, TIMES), min_size=1), st.integers(0, 10_000))
def test_times_past_the_limit_are_replaced(pairs, limit):  # W12
    times, arrivals = [time for time, _ in pairs], [arrival for _, arrival in pairs]
    capped_times, capped = cap_future_event_times(times, arrivals, limit)

    assert all(time <= arrival + limit for time, arrival in zip(capped_times, arrivals, strict=True))
    assert capped == sum(time > arrival + limit for time, arrival in pairs)


def batch_of(arrivals, event_times):
    records = [UserRecord(b"5", str(index), arrival / 1000) for index, arrival in enumerate(arrivals)]
    return RecordBatch(Shard("s", "a"), records, event_times=event_times)


def test_monotonous_ignores_the_bound():
    made = Monotonous(Properties({"flink.watermark.outoforderness.millis": 1_000}))

    assert list(made.advance([10, 30, 20])) == [10, 30, 30]


def test_arrival_ignores_the_event_times():
    made = ArrivalWatermarks(Properties({"flink.watermark.outoforderness.millis": 5}))

    assert list(made.times(batch_of([100, 200], [9_000, 1]))) == [100, 200]
    assert list(made.advance([100, 200])) == [95, 195]


def test_a_users_function_sets_the_watermark_which_still_never_falls():
    made = AssignedWatermarks(Properties(), lambda record: record.event_time - 3)

    assert list(made.advance(made.times(batch_of([1, 2, 3], [10, 5, 20])))) == [7, 7, 17]
