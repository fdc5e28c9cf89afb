"""Directed schedules in which something happens to one call, or in which it is counted what must not happen at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from recordpublisher.fetcher.leases.group_store import LEASE_TABLE, PARTS_PREFIX, WORKERS

from .calm_schedule import calm, event
from .group_schedule import GroupSchedule
from .traps import Trap


def answer_of_the_last_heartbeat_is_late(seed: int) -> GroupSchedule:
    """A heartbeat takes effect at once, its answer comes 18 s later, and nothing else of the worker arrives (E4)."""
    traps = [Trap("w0", WORKERS, what, 40, seconds) for what, seconds in (("late answer", 18.0), ("cut-off", 45.0))]
    return replace(calm(seed, records=400), timeout=19.0, traps=tuple(traps))


def commit_lands_between_the_seal_and_the_take(seed: int) -> GroupSchedule:
    """A worker is killed, and its commit arrives when its successor has read its positions and has not taken its shards yet (E3)."""
    late = Trap("w1", PARTS_PREFIX, "late request", 40, random.Random(seed).uniform(24, 30))
    traps = (late, Trap("w1", PARTS_PREFIX, "kill", 40), Trap("w0", LEASE_TABLE, "late request", 55, 10.0))
    return replace(calm(seed, workers=2), timeout=12.0, traps=traps)


def take_lands_after_the_seal(seed: int) -> GroupSchedule:
    """A worker is killed while its first take is under way, and a worker that can read the shard is out of reach (E12)."""
    traps = (Trap("w2", LEASE_TABLE, "late request", 45, 27.0), Trap("w2", LEASE_TABLE, "kill", 45))
    return replace(_one_joins(seed, 4, 0.0), traps=traps)


def take_goes_on_after_the_seal(seed: int) -> GroupSchedule:
    """A worker is suspended before its first take, and resumes when it is sealed and deleted (E12)."""
    return replace(_one_joins(seed, 6, 0.5), traps=(Trap("w2", LEASE_TABLE, "suspend", 45, 27.0),))


def _one_joins(seed: int, roots: int, lost: float) -> GroupSchedule:
    """Two workers give shards to a third; later one of the two is out of reach for less than a lease."""
    events = event("join", 40), event("cut-off", 73, 12, lost)
    return replace(calm(seed, *events, workers=2, roots=roots), timeout=5.0)


def sealed_before_it_knows_that_it_joined(seed: int) -> GroupSchedule:
    """A worker's first record is stored, it is not told, and it is suspended. One deletion of its record arrives long afterwards (E12)."""
    its_own = (Trap("w1", WORKERS, "lost answer", 0), Trap("w1", WORKERS, "suspend", 0.5, 40.0))
    late = Trap("w0", f"delete {WORKERS}w1", "late request", 20, random.Random(seed).uniform(30, 50))
    return replace(calm(seed, workers=2, roots=6), traps=(*its_own, late))


def commits_without_answers(seed: int) -> GroupSchedule:
    """The commits of a worker take effect and are not answered, while it takes the shards of another that leaves (E1)."""
    traps = (Trap("w0", PARTS_PREFIX, "lost answer", 40, times=8),)
    return replace(calm(seed, event("leave", 46, choice=0.99), workers=2), traps=traps)


def ends_while_its_checkpoint_settles(seed: int) -> GroupSchedule:
    """A checkpoint has read the positions, and waits for the answer of the commit before it, when the record of its worker is sealed.

    The part is sealed later, so the checkpoint could still be committed, without the rows that were dropped with the life (E1).
    """
    silent = Trap("w0", WORKERS, "late request", 42, 60.0, times=50, until=61)
    of_commits = (Trap("w0", PARTS_PREFIX, "lost answer", 40), Trap("w0", PARTS_PREFIX, "late answer", 56, 10.0))
    of_the_seal = Trap("w1", f"{PARTS_PREFIX}w0", "late request", 42, 11.0)
    schedule = replace(calm(seed, workers=2, records=400), timeout=12.0, is_transactional=True)
    return replace(schedule, traps=(silent,), sink_traps=(*of_commits, of_the_seal))


def long_flushes(seed: int) -> GroupSchedule:
    """Shards are given up while the sink is flushed for long, and before it: nothing may be written twice (E5)."""
    draw = random.Random(seed)
    events = [event(draw.choice(["join", "join", "leave"]), at, 0, draw.random()) for at in range(20, 180, 20)]
    return replace(calm(seed, *events), is_graceful=True, disturbed_seconds=200.0, flush_seconds=16.0)


def outage_of_the_store(seed: int) -> GroupSchedule:
    """Nobody reaches the store for longer than a lease: nobody is silent for others (E3)."""
    return replace(calm(seed, event("cut-off-all", 40, 30), workers=4), seals=0)


def observer_that_stalls(seed: int) -> GroupSchedule:
    """The only worker that is left is suspended again and again: it seals the dead one all the same (E3)."""
    stalls = [event("suspend", at, 11.0) for at in range(30, 230, 17)]
    schedule = calm(seed, event("crash", 20, choice=0.99), *stalls, workers=2)
    return replace(schedule, disturbed_seconds=240.0, clock="stopped", seals=1)


def short_visits(seed: int) -> GroupSchedule:
    """Workers join and leave within two intervals: no shard moves to them (E6)."""
    visits = [event(kind, at + 6 * (kind == "leave"), choice=0.99) for at in (40, 60, 80) for kind in ("join", "leave")]
    return replace(calm(seed, *visits, workers=2, roots=6), is_graceful=True, quiet=(38.0, 115.0))


TRAPPED: dict[str, Callable[[int], GroupSchedule]] = {
    each.__name__: each
    for each in (
        answer_of_the_last_heartbeat_is_late, commit_lands_between_the_seal_and_the_take, take_lands_after_the_seal,
        take_goes_on_after_the_seal, sealed_before_it_knows_that_it_joined, commits_without_answers,
        ends_while_its_checkpoint_settles, long_flushes, outage_of_the_store, observer_that_stalls, short_visits,
    )
}  # fmt: skip
