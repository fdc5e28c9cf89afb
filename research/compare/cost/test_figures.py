"""The table of the clients."""

from compare.cost.figures import table
from compare.cost.measuring import Measured


def row(name, cpu, way="polling", size=200):
    return Measured(name, "1.0", way, size, cpu, cpu - 1, cpu + 1, 100.0, 5.0, 9.0, 2.0, "2026-11-23")


def test_the_cheapest_client_comes_first_and_what_was_not_measured_is_empty():
    rows = [row("dear", 9.0), row("cheap", 3.0), row("cheap", 5.0, size=1024), row("other", 1.0, way="fan-out")]
    assert table(rows, "polling").splitlines() == [
        "| client | CPU, 200 B | CPU, 1,024 B | memory | latency p50 | p99 | load |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| cheap 1.0 | 3.00 us (2.00 to 4.00) | 5.00 us (4.00 to 6.00) | 100 MB | 5.0 ms | 9.0 ms | 2 to 2 |",
        "| dear 1.0 | 9.00 us (8.00 to 10.00) |  | 100 MB | 5.0 ms | 9.0 ms | 2 to 2 |",
        "",
        "*Measured 2026-11-23.*",
    ]
