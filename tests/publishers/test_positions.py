"""Positions, and the one rule for "where next" (P1, P2)."""

import pytest

from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition, next_position


def test_behind_a_whole_record_is_after_it():
    assert StartingPosition.after(SequenceNumber("5")) == StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, "5")


def test_behind_a_part_of_an_aggregate_is_at_its_record_with_what_to_skip():  # P2
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
def test_a_start_without_a_record_has_the_services_name(made, kind):
    assert (made.type.value, made.sequence_number) == (kind, None)


def test_no_answer_leaves_the_position_where_it_was():  # P1, P4
    start = StartingPosition.at_timestamp(1_459_799_926_480)
    assert next_position(start, None) is start
    assert next_position(start, SequenceNumber("5")) == StartingPosition.after(SequenceNumber("5"))


def test_sequence_numbers_show_and_compare_by_both_parts():
    assert [str(SequenceNumber("5")), str(SequenceNumber("5", 3))] == ["5", "5-3"]
    assert SequenceNumber("5") != SequenceNumber("5", 3)
    assert SequenceNumber("5", 3) == SequenceNumber("5", 3)
