"""Positions, and the rule for the next position (P1, P2)."""

import pytest

from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition, next_position


def test_a_restart_after_a_whole_record_starts_after_its_sequence_number():
    assert StartingPosition.after(SequenceNumber("5")) == StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, "5")


def test_a_restart_inside_an_aggregate_starts_at_its_record_and_skips_sub_records():  # P2
    done = SequenceNumber("5", 3)
    assert StartingPosition.after(done) == StartingPosition(PositionType.AT_SEQUENCE_NUMBER, "5", skip_through=done)


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (StartingPosition.trim_horizon(), "TRIM_HORIZON"),
        (StartingPosition.latest(), "LATEST"),
        (StartingPosition.at_timestamp(7), "AT_TIMESTAMP"),
    ],
)
def test_starts_without_a_sequence_number_have_the_services_names(made, kind):
    assert (made.type.value, made.sequence_number) == (kind, None)


def test_none_leaves_the_position_unchanged():  # P1, P4
    start = StartingPosition.at_timestamp(1_459_799_926_480)
    assert next_position(start, None) is start
    assert next_position(start, SequenceNumber("5")) == StartingPosition.after(SequenceNumber("5"))


def test_sequence_numbers_are_shown_and_compared_with_their_sub_sequence_numbers():
    assert [str(SequenceNumber("5")), str(SequenceNumber("5", 3))] == ["5", "5-3"]
    assert SequenceNumber("5") != SequenceNumber("5", 3)
    assert SequenceNumber("5", 3) == SequenceNumber("5", 3)


def test_an_age_is_pinned_once_as_latest_is():  # P3
    hour_ago = StartingPosition(PositionType.LATEST, ago_ms=3_600_000)

    assert not hour_ago.is_tip
    assert hour_ago.pinned_at(10_000_000) == StartingPosition.at_timestamp(6_400_000)
    assert hour_ago.pinned_at(10_000_000).pinned_at(99_000_000) == StartingPosition.at_timestamp(6_400_000)
