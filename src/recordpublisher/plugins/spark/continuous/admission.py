"""Which steps a batch takes: plain functions of what waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .backlog import Waiting
from .history import Step


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one batch, about: whole files are taken, and one at least (None: no limit)."""

    rows: int | None = None
    payload: int | None = None


def admitted(waiting: Waiting, known: Waiting, limits: Limits, turn: int) -> tuple[int, ...]:
    """Up to which step of each lane the next batch goes.

    Lanes give a step each in turn, beginning with another lane in every batch, so that none starves. A child's first rows are for a later
    batch than its parents' last, unless one lane has both: a lane's rows stay in order (S2). `known` is what waits as of a later look than
    `waiting`: a parent's rows were put before its child's, so that a later look sees them.
    """
    homes = _lanes_with_rows_of_parents(waiting, known)
    lanes = [_before_parents_end(steps, lane, homes) for lane, steps in enumerate(waiting.lanes)]
    order = [(turn + place) % len(lanes) for place in range(len(lanes))]
    taken = [0] * len(lanes)
    rows = payload = 0
    while any(taken[lane] < len(lanes[lane]) for lane in order):
        for lane in order:
            if taken[lane] == len(lanes[lane]):
                continue
            manifest = lanes[lane][taken[lane]].manifest
            if rows and manifest.rows and not _fits(rows + manifest.rows, payload + manifest.payload, limits):
                return _numbers(waiting, lanes, taken)
            taken[lane] += 1
            rows, payload = rows + manifest.rows, payload + manifest.payload
    return _numbers(waiting, lanes, taken)


def _fits(rows: int, payload: int, limits: Limits) -> bool:
    return (limits.rows is None or rows <= limits.rows) and (limits.payload is None or payload <= limits.payload)


def _numbers(waiting: Waiting, lanes: Sequence[Sequence[Step]], taken: Sequence[int]) -> tuple[int, ...]:
    return tuple(lanes[lane][count - 1].number if count else waiting.read[lane] for lane, count in enumerate(taken))


def _lanes_with_rows_of_parents(waiting: Waiting, known: Waiting) -> Mapping[str, set[int]]:
    """Of each parent that a child waits for: the lanes that have rows of it."""
    homes: dict[str, set[int]] = {
        parent: set() for step in waiting.steps for rows in step.manifest.shards.values() for parent in rows.parents
    }
    if homes:
        for lane, steps in enumerate(known.lanes):
            for key in (key for step in steps for key in step.manifest.shards if key in homes):
                homes[key].add(lane)
    return homes


def _before_parents_end(steps: Sequence[Step], lane: int, homes: Mapping[str, set[int]]) -> Sequence[Step]:
    for place, step in enumerate(steps):
        if any(homes[parent] - {lane} for rows in step.manifest.shards.values() for parent in rows.parents):
            return steps[:place]
    return steps
