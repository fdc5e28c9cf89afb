"""How the lines of a client are judged. Numbers 0, 8, 16 have the same key."""

import pytest

from compare.truth.scoring import Score, score


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ([(1.0, 0), (2.0, 8), (12.0, 16)], Score(3, 0, 0, 0, 1.0, 2.0)),
        ([(1.0, 0), (4.0, 8)], Score(3, 1, 0, 0, 3.0, None)),
        ([(1.0, 0), (2.0, 8), (12.0, 8), (13.0, 16)], Score(3, 0, 1, 0, 1.0, 3.0)),
        ([(1.0, 0), (2.0, 16), (3.0, 8)], Score(3, 0, 0, 1, 2.0, None)),
    ],
    ids=["all", "lost", "repeated", "out of order"],
)
def test_lines_are_judged_by_what_was_put(printed, expected):
    put = {0: 0.0, 8: 1.0, 16: 9.0}
    assert score(put, printed, began=0.0, killed=10.0) == expected


def test_records_of_other_keys_have_no_order():
    assert score({0: 0.0, 1: 0.0}, [(1.0, 1), (2.0, 0)], began=0.0, killed=10.0).out_of_order == 0
