"""What alignment waits for, in one sentence."""

import pytest

from recordpublisher.fetcher.monitoring.metrics_exporter import SubtaskMetrics
from recordpublisher.plugins.dashboard.live_snapshots import alignment_sentence

from fakes.monitoring.measured_fetcher import METRICS


def shard(**values):
    return {**METRICS["shards"]["s/a"], "stage": "READING", "watermark": 1_000, **values}


def subtask(number=0, held=0, blocking=None, **shards):
    own = {**METRICS["subtask"], "openShards": len(shards), "heldShards": held}
    own |= {"blockingShard": blocking and f"s/{blocking}"}
    return SubtaskMetrics(number, own, {f"s/{name}": values for name, values in shards.items()})


def test_without_a_held_shard_it_holds_nothing():
    assert alignment_sentence([subtask(a=shard())]) == "Alignment holds no shard back."


REASONS = [
    ({"millisBehindLatest": 2_500}, "which is 2.5 s behind its newest record"),
    ({"millisBehindLatest": -1}, "which has not been read yet"),
    ({"millisBehindLatest": 0}, "which has no new records and is not idle yet"),
    ({"queuedRecords": 3}, "whose records are read and wait to be written"),
    ({"alarm": True, "queuedRecords": 3}, "which has unread records and wrote none for the alarm interval"),
    ({"stage": "ENDED"}, "which has ended and whose children are not read yet"),
]


@pytest.mark.parametrize(("values", "reason"), REASONS)
def test_it_names_the_shard_and_the_reason(values, reason):
    job = [subtask(0, held=1, blocking="a", a=shard(**values), b=shard(held=True))]

    assert alignment_sentence(job) == f"1 of 2 shards is held back: it waits for s/a of subtask 0, {reason}."


def test_the_lowest_watermark_counts():
    first = subtask(0, held=1, blocking="a", a=shard(watermark=5))
    second = subtask(1, blocking="b", b=shard(watermark=3))
    third = subtask(2, blocking="c", c=shard(watermark=None))

    assert "s/b of subtask 1" in alignment_sentence([first, second])
    assert "s/c of subtask 2" in alignment_sentence([first, second, third])


def test_a_shard_of_another_process_is_not_known():
    assert alignment_sentence([subtask(0, held=1, a=shard())]) == (
        "1 of 1 shards is held back: it waits for a shard of another process."
    )
