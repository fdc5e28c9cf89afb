"""Random streams for tests with hypothesis, and what must be true of the rows of a query over one."""

from __future__ import annotations

from hypothesis import strategies as st

from recordpublisher.publishers.shards import Shard

from .simulated_kinesis import ManualClock, SimulatedKinesis

event_times = st.lists(st.integers(0, 20_000), max_size=25)


@st.composite
def worlds(draw: st.DrawFn, resharded: bool = True) -> SimulatedKinesis:
    """Some shards, some of them split or merged, event times out of order by up to 500 ms."""
    kinesis = SimulatedKinesis(clock=ManualClock(), out_of_orderness=500)
    roots = [f"r{n}" for n in range(draw(st.integers(1, 4)))]
    for name in roots:
        steps = draw(event_times)
        kinesis.add(name, [max(0, time - draw(st.integers(0, 500))) for time in sorted(steps)])
    if resharded and draw(st.booleans()):
        children = [kinesis.add(f"c{n}", sorted(draw(event_times)), ("r0",)) for n in range(2)]
        kinesis.close("r0", *(children if draw(st.booleans()) else ()))
        kinesis.discovered = children
    if resharded and len(roots) > 2 and draw(st.booleans()):
        merged = kinesis.add("m", sorted(draw(event_times)), ("r1", "r2"))
        kinesis.close("r1", merged)
        kinesis.close("r2", merged)
    return kinesis


def check_exactly_once(delivered: list[tuple[str, str]], kinesis: SimulatedKinesis) -> None:
    """Assert that every record came once, in order; rows are shard key and sequence number."""
    assert len(delivered) == len(set(delivered))
    assert set(delivered) == kinesis.records()
    for key in kinesis.shards:
        numbers = [int(sequence) for shard, sequence in delivered if shard == key]
        assert numbers == sorted(numbers)
    for simulated in kinesis.shards.values():
        for parent in simulated.shard.parents:
            check_parent_first(delivered, f"s/{parent}", simulated.shard)


def check_parent_first(delivered: list[tuple[str, str]], parent: str, child: Shard) -> None:
    places = {key: [n for n, row in enumerate(delivered) if row[0] == key] for key in (parent, child.key)}
    if places[parent] and places[child.key]:
        assert max(places[parent]) < min(places[child.key])
