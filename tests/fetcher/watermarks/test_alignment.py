"""W8, W9: which shard emits next, and how many of its records are within the emit limit."""

from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.monitoring.status_and_warnings import what_blocks
from recordpublisher.fetcher.settings import AlignmentTimes
from recordpublisher.fetcher.watermarks import Alignment, OwnWatermark, ShardsStatus

from fakes.other_workers import OtherWorkers
from fakes.shard_entries import AlwaysRunning, StoppedClock, entry, marker, watermarked


def alignment(lookahead=None, tracker=None, clock=None, running_time=None):
    clock = clock or StoppedClock()
    settings = AlignmentTimes(lookahead)
    return Alignment(tracker or OwnWatermark(), settings, clock, running_time or AlwaysRunning(clock))


def queued(made, shard_id, *watermarks, **more):
    one = entry(shard_id, **more)
    one.reading.queue.push(watermarked(*watermarks, shard_id=shard_id))
    made.update(one)
    return one


def test_without_lookahead_everything_may_be_emitted():
    made = alignment()
    one = queued(made, "a", 5, 10**15)

    assert made.select_next() == (one, 2)


def test_without_lookahead_shards_take_turns():
    made = alignment()
    entries = [queued(made, name, 1) for name in "abc"]
    turns = []
    for _ in range(6):
        one, _ = made.select_next()
        turns.append(one.shard.shard_id)
        made.on_emitted(one)
        made.update(one)

    assert turns == ["a", "b", "c", "a", "b", "c"]
    assert entries


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6).map(sorted), min_size=1, max_size=4),
    st.integers(0, 20),
)
def test_exactly_the_records_below_the_emit_limit_are_selected_the_lowest_first(heads, lookahead):  # W8, W9
    made = alignment(lookahead)
    entries = [queued(made, str(number), *watermarks) for number, watermarks in enumerate(heads)]
    lowest = min(watermarks[0] for watermarks in heads)
    one, count = made.select_next()

    assert one.next_watermark == lowest
    assert count == sum(each <= lowest + lookahead for each in one.reading.queue[0].watermarks)
    assert made.emit_limit() == lowest + lookahead
    assert entries


def test_a_shard_without_a_watermark_holds_the_others():  # W2
    made = alignment(1_000)
    queued(made, "a", 5)
    made.update(entry("silent"))

    assert made.select_next() is None
    assert made.blocking_shard == "s/silent"


def test_the_watermark_waits_for_the_shard_or_for_the_other_worker_that_is_lowest():
    others = OtherWorkers(1_000)
    made = alignment(0, others)
    assert what_blocks(made) == "a shard of another worker"
    queued(made, "a", 5_000)
    made.report()
    assert what_blocks(made) == "a shard of another worker"
    others.lowest = 9_000
    made.report()
    assert what_blocks(made) == "shard s/a"


def test_a_process_that_reads_every_shard_waits_for_no_other():
    made = alignment(0)
    assert what_blocks(made) == "no shard of this worker"
    queued(made, "a", 5_000)
    assert what_blocks(made) == "shard s/a"


def test_an_idle_shard_holds_no_other():  # W3
    made = alignment(0)
    one = queued(made, "a", 5)
    silent = entry("silent", watermark=1)
    silent.reading.is_idle = True
    made.update(silent)

    assert made.select_next() == (one, 1)


def test_a_silent_shard_holds_at_its_last_watermark():
    made = alignment(10)
    queued(made, "a", 5, 12, 15)
    made.update(entry("b", watermark=2))

    assert made.select_next()[1] == 2


def test_the_next_record_raises_the_reported_watermark():  # W1
    tracker = OwnWatermark()
    made = alignment(0, tracker)
    queued(made, "a", 90, watermark=3)

    assert made.report() == 90


def test_batches_without_records_are_selected_first():  # F6
    made = alignment(0)
    queued(made, "a", 5)
    one = entry("b", watermark=1)
    one.reading.queue.push(marker())
    made.update(one)

    assert made.select_next() == (one, 0)


def test_another_worker_holds_the_emit_limit():  # W6
    tracker = OtherWorkers()
    made = alignment(10, tracker)
    queued(made, "a", 5, 16)
    assert made.select_next() is None
    tracker.lowest = 2

    assert made.select_next()[1] == 1


def test_a_tracker_without_a_global_watermark_holds_every_shard():  # W2
    clock = StoppedClock()
    made = alignment(10, OtherWorkers(), clock)
    queued(made, "a", 5, 16)
    clock.seconds = 1_000_000.0

    assert made.select_next() is None


def test_an_event_time_bound_limits_the_emission_by_itself():
    made = alignment()
    made.start_run(until_event_time=7)
    one = queued(made, "a", 5, 7, 8)

    assert made.select_next() == (one, 2)


def test_the_time_held_back_is_measured():  # A1
    clock = StoppedClock()
    made = alignment(0, clock=clock)
    queued(made, "a", 1)
    made.report()
    late = queued(made, "b", 50)
    clock.seconds = 3.0
    assert late.status.held_since == 0.0
    late.drop_unread()
    made.update(late)

    assert (late.status.held_since, late.status.held_seconds) == (None, 3.0)


def test_a_shard_that_waits_for_the_first_value_is_held():  # P6
    made = alignment(0, OtherWorkers())

    assert queued(made, "a", 1).status.held_since is not None


def test_a_removed_shard_holds_no_other():
    made = alignment(0)
    one = queued(made, "a", 5)
    made.update(entry("gone"))
    made.remove("s/gone")

    assert made.select_next() == (one, 1)


def test_an_excluded_shard_within_the_limit_is_selected_although_the_first_in_turn_is_held():  # W12
    tracker = OtherWorkers(1_000)
    tracker.report(ShardsStatus.ACTIVE, 5_000)
    made = alignment(100, tracker)
    late, later = entry("late"), entry("later")
    for one, watermarks in ((late, (10, 1_050, 2_000)), (later, (1_500,))):
        one.status.is_straggler = True
        one.reading.queue.push(watermarked(*watermarks, shard_id=one.shard.shard_id))
    queued(made, "held", 5_000)
    made.update(later)
    made.update(late)

    assert made.select_next() == (late, 2)
    late.take(2)
    made.on_emitted(late)
    made.update(late)
    assert made.select_next() is None
    made.remove("s/late")
    made.remove("s/later")
    assert made.select_next() is None
