"""What a snapshot carries along for others, after the parallelism has changed (S5).

A subtask's snapshot takes the place of an older one, of the same subtask number in a start with another parallelism. That one may hold
shards which another subtask owns now and has not read yet: they travel in the new snapshot, with the generation they are of, until
every subtask of the new parallelism has a snapshot of its own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from .sink import State

KEY = "inherited"


def inherited_by(
    subtask: int, parallelism: int, found: Iterable[State], own: Container[str]
) -> dict[str, list[dict[str, Any]]]:
    """The entry of a subtask's snapshots for what it found in its own place, less the shards that it owns; nothing to carry: no entry."""
    carried: list[dict[str, Any]] = []
    for each in with_inheritance(found):
        if each.get("subtask") != subtask:
            continue
        others = {key: entry for key, entry in each["shards"].items() if key not in own}
        if others and each.get("parallelism") != parallelism:
            carried.append({**{name: value for name, value in each.items() if name != KEY}, "shards": others})
    return {KEY: carried} if carried else {}


def with_inheritance(snapshots: Iterable[State]) -> list[State]:
    """The snapshots, and what they carry as far as somebody may not have read it yet."""
    given = list(snapshots)
    carried = [old for carrier in given for old in carrier.get(KEY, ()) if not _is_read(old, carrier, given)]
    return [*given, *carried]


def _is_read(old: State, carrier: State, snapshots: Iterable[State]) -> bool:
    """Whether every subtask of the carrier's parallelism has a snapshot that is newer: each was opened with `old` at hand."""
    parallelism = carrier.get("parallelism")
    newer = {
        each.get("subtask")
        for each in snapshots
        if each.get("parallelism") == parallelism and each["generation"] > old["generation"]
    }
    return isinstance(parallelism, int) and len(newer) >= parallelism > 0
