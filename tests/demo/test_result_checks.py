"""The verdict sees what is wrong."""

from recordpublisher.demo import result_checks as verdict
from recordpublisher.demo.progress import Story
from recordpublisher.demo.result_checks import Evidence


def rows(ids=(0, 1, 2), batch=(1, 1, 2), shards=("p", "p", "c"), times=(10, 20, 30)):
    return Evidence(list(batch), list(ids), ["UA"] * 3, list(shards), [str(id_) for id_ in ids], list(times))


def right(findings):
    return [finding.is_right for finding in findings]


def test_nothing_lost_and_nothing_repeated_is_right():
    assert right(verdict._nothing_lost_or_repeated(rows(), 3)) == [True, True, True]


def test_a_repeated_flight_is_a_duplicate_and_leaves_another_missing():
    assert right(verdict._nothing_lost_or_repeated(rows(ids=(0, 1, 1)), 3)) == [True, False, False]


def test_a_batch_that_spreads_too_far_is_seen():
    assert verdict._spread(rows(), allowed_ms=10).is_right
    assert not verdict._spread(rows(), allowed_ms=9).is_right


def test_a_child_in_its_parents_last_batch_is_too_early():
    story = Story(3)
    story.shards = {"f/c": {"id": "c", "parents": ["p"]}, "f/p": {"id": "p"}}

    assert verdict._children_after_parents(rows(), story).is_right
    assert not verdict._children_after_parents(rows(batch=(1, 2, 2)), story).is_right


def test_a_watermark_that_falls_is_seen():
    story = Story(3)
    story.global_watermarks = [("flights", 5), ("departures", 3), ("flights", 6)]
    assert verdict._watermark_never_fell(story).is_right

    story.global_watermarks.append(("flights", 4))
    assert not verdict._watermark_never_fell(story).is_right
