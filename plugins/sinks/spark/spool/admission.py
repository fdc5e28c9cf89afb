"""Which steps a batch takes: plain functions of what waits."""

from __future__ import annotations

from collections.abc import Sequence
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
    lanes = [_before_parents_end(lane, number, known) for number, lane in enumerate(waiting.lanes)]
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


def _before_parents_end(steps: Sequence[Step], lane: int, known: Waiting) -> Sequence[Step]:
    elsewhere = {
        key
        for other, theirs in enumerate(known.lanes)
        if other != lane
        for step in theirs
        for key in step.manifest.shards
    }
    for place, step in enumerate(steps):
        if any(parent in elsewhere for rows in step.manifest.shards.values() for parent in rows.parents):
            return steps[:place]
    return steps
