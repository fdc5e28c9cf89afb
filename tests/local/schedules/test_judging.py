"""How the lines of a client are judged. Numbers 0, 8, 16 have the same key."""

import pytest

from recordpublisher.local.schedules.judging import Score, Seen, score, seen_in

PUT = {0: 0.0, 8: 1.0, 16: 9.0}
OTHERS = [Seen(number, 0.0, 0.0) for number in range(17) if number % 8]


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ([(1.0, 0), (2.0, 8), (12.0, 16)], Score(17, 0, 0, 0, 1.0, 2.0)),
        ([(1.0, 0), (4.0, 8)], Score(17, 1, 0, 0, 3.0, None)),
        ([(1.0, 0), (2.0, 8), (12.0, 8), (13.0, 16)], Score(17, 0, 1, 0, 1.0, 3.0)),
        ([(1.0, 0), (2.0, 16), (3.0, 8)], Score(17, 0, 0, 1, 2.0, None)),
    ],
    ids=["all", "lost", "repeated", "out of order"],
)
def test_lines_are_judged_by_what_was_put(printed, expected):
    lines = [Seen(number, PUT[number], at) for at, number in printed]
    assert score(17, OTHERS + lines, keys=8, began=-1.0, killed=10.0) == expected


def test_records_of_other_keys_have_no_order():
    assert score(2, [Seen(1, 0.0, 1.0), Seen(0, 0.0, 2.0)], keys=8).out_of_order == 0


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("17 1700000000.250\n", Seen(17, 1_700_000_000.25, 5.0)),
        ("shardId-000000000001 17 1700000000.250", Seen(17, 1_700_000_000.25, 5.0)),
        ("17 1700000000.250 1700000001.5", Seen(17, 1_700_000_000.25, 1_700_000_001.5)),
        ("a b 17 1700000000.250", None),
        ("17", None),
        ("", None),
    ],
)
def test_a_line_is_a_number_and_when_it_was_put(line, seen):
    assert seen_in(line, now=5.0) == seen
