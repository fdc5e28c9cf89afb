"""How the rows that a job has written are judged, and what the table says of them."""

from compare.spark import layers
from compare.spark.__main__ import HEADS, cells
from compare.spark.measuring import RowCost, _cost, _shard, lost_and_repeated


def test_rows_are_judged_by_the_numbers_that_were_put():
    first = [number for number in range(100) if _shard(number) == 0]
    others = [number for number in range(100) if _shard(number)]
    assert lost_and_repeated(100, [*others, *first]) == {"lost": 0, "unread": 0, "repeated": 0}
    assert lost_and_repeated(100, [*others, *others, *first]) == {"lost": 0, "unread": 0, "repeated": len(others)}
    assert lost_and_repeated(100, [*others, *first[1:]]) == {"lost": 1, "unread": 0, "repeated": 0}
    assert lost_and_repeated(100, [*others, *first[:-2]]) == {"lost": 0, "unread": 2, "repeated": 0}


def test_the_table_has_a_row_for_each_connector():
    row = {
        "rows_a_second": 12_345.6,
        "cpu_a_row_us": 3.21,
        "put_to_end_s": 0.25,
        "small_cores": 0.5,
        "records": 5000,
        "restart_s": 9.6,
    }
    told = {**row, "kills": 8, "lost": 1, "unread": 3, "repeated": 2}
    shown = ["x", "12,346", "3.2 us", "0.25 s", "0.50", "5,000, 8", "1", "3", "2", "10 s"]
    assert cells("x", told) == shown
    assert len(HEADS) == len(shown)


def test_a_row_costs_what_was_used_between_two_lines():
    start, end = {"cpu": 10.0, "java": 4.0}, {"cpu": 16.0, "java": 6.0}
    assert _cost(start, end, 2_000_000) == RowCost(java=1.0, python=2.0)


def test_the_table_of_layers_has_sums():
    shown = ["x", "3.0 us", "2.0 us", "5.0 us", "1.0 us", "2.0 us", "3.0 us"]
    assert layers.cells("x", {"cold": [3.0, 2.0], "warm": [1.0, 2.0]}) == shown
    assert len(layers.HEADS) == len(shown)
