"""The CPU per record that MapSink adds to the same handler awaited bare, 64 at a time (`make bench`)."""

import pytest

from benchmarks.figures.table import Row
from benchmarks.processes import micros_of

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(300)]

RECORDS, ROUNDS = 200_000, 5


@pytest.mark.parametrize("kind", ["at_once", "suspended"])
@pytest.mark.parametrize(
    ("how", "name", "at_most"),
    [
        ("PER_KEY", "", 3.0),
        ("timeout", " with a time-out,", 4.0),
        ("group", " in a group,", 3.0),
        ("group-timeout", " in a group with a time-out,", 4.0),
    ],
)
def test_cpu_added_to_a_handler(table, kind, how, name, at_most):
    # the least of several: other work on the cores only ever adds, and not to both alike
    bare, with_sink = [], []
    for _ in range(ROUNDS):
        bare.append(micros_of("clients/sinks/map_sink_client.py", kind, "bare", RECORDS))
        with_sink.append(micros_of("clients/sinks/map_sink_client.py", kind, how, RECORDS))
    added = min(with_sink) - min(bare)
    when = {"at_once": "returns at once", "suspended": "suspends once"}[kind]
    table.append(Row(f"MapSink,{name} the handler {when}, 200 B", added, at_most=at_most, section="map sink"))
