"""Which files of a shard are read, in which order, and what its reader does where they end."""

from dataclasses import replace
from math import inf

import pytest

from recordpublisher.plugins.archive.next_step import (
    RangeFile,
    Seam,
    Step,
    is_complete,
    next_step,
    order_key_of,
    ranges_of,
    starting_order_key,
)
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition


def named(*names):
    return ranges_of([(f"orders/s/{name}.jsonl", name) for name in names], int)


def names_of(files):
    return [f"{file.after_text}_{file.end.sequence}.{file.end.sub_sequence}" for file in files]


def test_ranges_are_in_the_order_of_numbers_not_of_texts():
    assert names_of(named("9.-1_10.-1", "10.-1_11.-1", "BEGIN_9.-1", "AT-100.-1_200.-1")) == [
        "BEGIN_9.-1",
        "9.-1_10.-1",
        "10.-1_11.-1",
        "AT-100.-1_200.-1",
    ]


def test_a_file_of_a_range_that_was_written_twice_counts_once():
    assert len(named("BEGIN_9.-1", "BEGIN_9.-1.0123456789ab")) == 1


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (["3.-1_5.-1", "8.-1_10.-1 file"], ["8.-1_10.-1"]),
        (["BEGIN_5.-1", "8.-1_10.-1 file"], ["8.-1_10.-1"]),
        (["1.-1_2.-1", "3.-1_5.-1", "5.-1_8.-1", "8.-1_10.-1 file"], ["3.-1_5.-1", "5.-1_8.-1", "8.-1_10.-1"]),
        (["3.-1_5.-1 file", "8.-1_10.-1 file"], ["3.-1_5.-1", "8.-1_10.-1"]),
        (["3.-1_5.-1 file", "5.-1_6.-1", "8.-1_10.-1 file"], ["3.-1_5.-1", "5.-1_6.-1", "8.-1_10.-1"]),
        (["3.-1_5.-1", "8.-1_10.-1"], ["3.-1_5.-1", "8.-1_10.-1"]),
    ],
)
def test_ranges_without_records_that_are_older_than_the_files_that_are_left_count_for_nothing(names, left):
    """Somebody has deleted the old files, which data lakes do; nothing says that their records must be read."""
    paths = [("orders/s/file.jsonl" if " file" in name else "", name.removesuffix(" file")) for name in names]
    assert names_of(ranges_of(paths, int)) == left


def test_parts_of_a_range_count_once_all_are_there():
    assert named("BEGIN_9.-1.1of2") == []
    assert [len(file.paths) for file in named("BEGIN_9.-1.1of2", "BEGIN_9.-1.2of2")] == [2]
    assert [len(file.paths) for file in named("BEGIN_9.-1.1of2", "BEGIN_9.-1")] == [1]


def test_names_without_ranges_prove_nothing():
    assert [file.is_proven for file in named("1.-1-9.-1", "9.-1_12.-1", "other")] == [False, True]


@pytest.mark.parametrize(
    ("name", "place", "follows"),
    [
        ("BEGIN_9.-1", None, True),
        ("AT-5.-1_9.-1", None, False),
        ("AT-5.-1_9.-1", (4, inf), False),
        ("AT-5.-1_9.-1", (5, inf), True),
        ("5.-1_9.-1", (5, inf), True),
        ("5.-1_9.-1", (5, 0), False),
        ("5.2_9.-1", (5, 2), True),
        ("5.2_9.-1", (5, 1), False),
        ("AT-5.2_9.-1", (5, 1), False),
        ("AT-5.2_9.-1", (5, 2), True),
        ("1.-1-9.-1", None, True),
    ],
)
def test_a_file_follows_a_place_if_nothing_between_is_missing(name, place, follows):
    assert named(name)[0].follows(place) is follows


def test_places_inside_an_aggregate_are_before_its_end():
    assert order_key_of(SequenceNumber("5", 2), int) < order_key_of(SequenceNumber("5"), int)
    at = StartingPosition(PositionType.AT_SEQUENCE_NUMBER, "5")
    assert starting_order_key(at, int) < (5, 0)
    assert starting_order_key(StartingPosition.after(SequenceNumber("5", 2)), int) == (5, 2)
    assert starting_order_key(StartingPosition.trim_horizon(), int) is None


@pytest.mark.parametrize(
    ("place", "through", "is_owed", "complete"),
    [
        ((9, inf), "9.-1", True, True),
        ((8, inf), "9.-1", True, False),
        ((9, 0), "9.-1", True, False),
        (None, "9.-1", True, False),
        (None, "9.-1", False, True),
        (None, "BEGIN", True, True),
        (None, "AT", True, False),
        (None, "AT", False, True),
    ],
)
def test_a_shard_is_complete_at_its_archived_end(place, through, is_owed, complete):
    assert is_complete(place, through, int, is_owed) is complete


FILE = RangeFile(("f",), (7, inf), (9, inf), SequenceNumber("9"), "7.-1")
AT_END = Seam((5, inf), None, is_complete=False, is_owed=True, is_live=True)
IN_HOLE = replace(AT_END, file=FILE)


@pytest.mark.parametrize(
    ("at", "step"),
    [
        (replace(IN_HOLE, place=(7, inf)), Step.READ),
        (replace(AT_END, is_complete=True), Step.END),
        (AT_END, Step.LIVE),
        (replace(AT_END, is_live=False), Step.LOST),  # an unlisted shard has not ended
        (IN_HOLE, Step.LOST),
        (replace(IN_HOLE, stream_has_following=True), Step.LIVE),
        (replace(IN_HOLE, stream_has_following=True, is_live=False), Step.LOST),
        (replace(IN_HOLE, is_owed=False), Step.SKIP),
        (replace(IN_HOLE, is_owed=False, stream_has_following=True), Step.LIVE),
    ],
)
def test_the_next_step(at, step):
    assert next_step(at) is step
