"""Judges what a client has written down of a schedule's records: lost, repeated, out of order, slowest."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

_LINE = re.compile(r"(?:\S+ )?(?P<number>\d{1,9}) (?P<put>\d{1,12}\.\d{3})(?: (?P<seen>\d{1,12}(?:\.\d{1,9})?))?\s*")


@dataclass(frozen=True, slots=True)
class Seen:
    """A record that a client has written down: its number, when it was put, and when it was seen, in seconds since the epoch."""

    number: int
    put: float
    at: float


def seen_in(line: str, now: float) -> Seen | None:
    """Read a line: `NUMBER PUT`, the record's data, perhaps with a word before it and the time at which it was seen after it."""
    found = _LINE.fullmatch(line)
    return found and Seen(int(found["number"]), float(found["put"]), float(found["seen"] or now))


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of records, and times in seconds. `recovered` is None if nothing new was read after the kill."""

    records: int
    lost: int
    repeated: int
    out_of_order: int
    slowest: float
    recovered: float | None


def score(records: int, lines: Iterable[Seen], keys: int, began: float = -inf, killed: float = inf) -> Score:
    """Judge the lines in the order in which they were written. The records have the numbers 0 to `records` - 1.

    Records of the same key are put in order, and a key moves from a shard to its child. So a number that comes for the first time after a
    higher number of its key is out of order. `slowest` is the longest time from put to seen of the records that were put after the schedule
    began, and more than five seconds before the kill.
    """
    first: dict[int, Seen] = {}
    highest: dict[int, int] = {}
    count = out_of_order = 0
    for seen in lines:
        count += 1
        if seen.number in first:
            continue
        first[seen.number] = seen
        key = seen.number % keys
        out_of_order += seen.number < highest.get(key, -1)
        highest[key] = max(seen.number, highest.get(key, -1))
    delays = [seen.at - seen.put for seen in first.values() if began < seen.put < killed - 5]
    after = [seen.at - killed for seen in first.values() if seen.at > killed]
    lost = len(set(range(records)) - first.keys())
    return Score(records, lost, count - len(first), out_of_order, max(delays, default=0.0), min(after, default=None))
