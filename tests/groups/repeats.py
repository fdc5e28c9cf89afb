"""What was written twice by the processes of a group, and whether a fault explains it (E4, E5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from groups.worker_group import WorkerGroup, Written


def repeats(written: Mapping[str, Iterable[Written]]) -> dict[str, list[str]]:
    """The sequence numbers that were written more than once, and by which processes, in order of time."""
    writers = defaultdict(list)
    in_order = sorted((each.seconds, each.sequence_number, name) for name, lines in written.items() for each in lines)
    for _, number, name in in_order:
        writers[number].append(name)
    return {number: names for number, names in writers.items() if len(names) > 1}


def check_repeats(
    written: Mapping[str, list[Written]], faults: Mapping[str, float], until: Mapping[str, float] | None = None
) -> int:
    """Returns the number of repeats.

    Each repeat is of what such a process wrote after its last checkpoint: the last part of what it wrote from a shard before the fault,
    and the one write that was going on.

    faults: when a process was killed, suspended or fenced (seconds since the epoch).
    until: until when a process may have written on, because it learns at its next checkpoint that it is fenced.
    """
    repeated = repeats(written)
    explained: set[str] = set()
    for name, fault in faults.items():
        by_shard = defaultdict(list)
        for each in written[name]:
            if each.seconds <= fault:
                by_shard[each.shard].append(name in repeated.get(each.sequence_number, [])[:-1])  # repeated later
        for shard, flags in by_shard.items():
            assert flags == sorted(flags), f"{name} repeated {shard} from before its last checkpoint"
        end = (until or {}).get(name, fault)
        going_on = min((each.seconds for each in written[name] if each.seconds > end), default=end)
        explained |= {each.sequence_number for each in written[name] if each.seconds <= going_on}
    unexplained = {number: names for number, names in repeated.items() if number not in explained}
    assert not unexplained, f"repeated without a fault: {unexplained}"
    return sum(len(names) - 1 for names in repeated.values())


def check_order(written: Mapping[str, Iterable[Written]]) -> None:
    """The records of a shard are first written in their order."""
    last: dict[str, int] = {}
    seen = set()
    for each in sorted(each for lines in written.values() for each in lines):
        number = int(each.sequence_number)
        if number not in seen:
            assert number > last.get(each.shard, 0), f"{each} was written after {last[each.shard]}"
            last[each.shard] = number
            seen.add(number)


def check_written(
    group: WorkerGroup, faults: Mapping[str, float] | None = None, until: Mapping[str, float] | None = None
) -> int:
    """Check order and repeats of all that the group's processes have written. Returns the number of repeats, and prints it."""
    written = {name: group.written(name) for name in group.processes}
    check_order(written)
    repeated = check_repeats(written, faults or {}, until)
    print(len(group.sent), "records,", repeated, "repeated")
    return repeated
