"""What a client has printed, judged: lost, repeated, out of order, and how long it took after the kill."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KEYS = 8


@dataclass(frozen=True)
class Score:
    """Counts of records, and seconds; `recovered` is None when nothing new was read after the kill."""

    records: int
    lost: int
    repeated: int
    out_of_order: int
    slowest: float
    recovered: float | None


def score(put: Mapping[int, float], printed: Sequence[tuple[float, int]], began: float, killed: float) -> Score:
    """`put` has the time of each number, `printed` the times and numbers of lines in order.

    Records of the same key are put in order, and a key moves from a shard to its child: a number that comes for the first time after a
    higher one of its key is out of order. `slowest`: the longest time from put to print of what was put after the schedule began, and five
    seconds before the kill or earlier.
    """
    first: dict[int, float] = {}
    highest: dict[int, int] = {}
    out_of_order = 0
    for moment, number in printed:
        if number in first:
            continue
        first[number] = moment
        out_of_order += number < highest.get(number % KEYS, -1)
        highest[number % KEYS] = max(number, highest.get(number % KEYS, -1))
    after = [moment - killed for moment in first.values() if moment > killed]
    early = [
        first[number] - moment for number, moment in put.items() if began < moment < killed - 5 and number in first
    ]
    return Score(
        len(put),
        len(put.keys() - first.keys()),
        len(printed) - len(first),
        out_of_order,
        max(early, default=0.0),
        min(after, default=None),
    )
