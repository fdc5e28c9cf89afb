"""Schedules for what chance hits too rarely: each is about one situation, and a seed decides the rest."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from recordpublisher.fetcher.leases.group_store import WORKERS

from .calm_schedule import calm, event
from .group_schedule import GroupSchedule, random_schedule
from .shared_store import MAX_LAG_SECONDS, Faults
from .trapped_schedules import TRAPPED
from .traps import Trap


def cut_off(seed: int) -> GroupSchedule:
    """A worker loses the store for a minute and goes on reading (E4, E9)."""
    return calm(seed, event("cut-off", 40, 60))


def cut_off_for_a_lease(seed: int) -> GroupSchedule:
    """Workers lose the store for about the lease duration: a heartbeat may arrive just before the seal (E3)."""
    draw = random.Random(seed)
    events = [event("cut-off", at, draw.uniform(18, 26), draw.random()) for at in range(20, 120, 12)]
    return replace(calm(seed, *events, workers=4), faults=Faults(0.0, 0.0, 1.0, 0.0, 0.0))


def sleep_and_wake_offline(seed: int) -> GroupSchedule:
    """A machine sleeps, its wall clock is set back on waking, and it wakes without a network (E4)."""
    return replace(calm(seed, event("sleep", 40, 45)), clock="asleep")


def pause_and_resume_offline(seed: int) -> GroupSchedule:
    """A virtual machine is paused, no clock but the wall clock counts that, and it goes on without a network (E4)."""
    return replace(calm(seed, event("sleep", 40, 45)), clock="paused")


def suspended_for_long(seed: int) -> GroupSchedule:
    """A worker wakes when its shards have owners and its documents are deleted (E1)."""
    schedule = calm(seed, event("suspend", 40, 85, 0.1), event("suspend", 50, 75, 0.9))
    return replace(schedule, faults=Faults(0.0, 0.0, 1.5, 0.0, 0.0), timeout=5.0)


def deleted_while_suspended(seed: int) -> GroupSchedule:
    """A worker wakes without the store of its group, and takes a checkpoint when its row in the sink is deleted (E1)."""
    return replace(calm(seed, event("sleep", 40, 80)), is_transactional=True)


def late_answers(seed: int) -> GroupSchedule:
    """Answers arrive seconds after the heartbeats took effect; then a worker loses the store (E4)."""
    draw = random.Random(seed)
    events = [event("cut-off", at, 40, draw.random()) for at in (40, 90)]
    return replace(calm(seed, *events, workers=5), faults=Faults(0.4, 0.0, 0.1, 0.0, 9.0), timeout=9.0)


def killed_with_calls_under_way(seed: int) -> GroupSchedule:
    """Calls of killed workers reach a slow store while the others take over (E3, E12)."""
    draw = random.Random(seed)
    events = [event(kind, at, 0, draw.random()) for at in range(20, 120, 15) for kind in ("crash", "join")]
    return replace(calm(seed, *events), faults=Faults(0.3, 0.0, 1.5, 35.0, 0.0), timeout=5.0)


def killed_while_committing(seed: int) -> GroupSchedule:
    """Commits of killed workers reach the sink while the others take over (E1, E3)."""
    return replace(killed_with_calls_under_way(seed), is_transactional=True)


def suspended_while_committing(seed: int) -> GroupSchedule:
    """Workers are suspended at their calls for about as long as it takes to replace them (E1, E3)."""
    schedule = replace(calm(seed, workers=4), is_transactional=True)
    return replace(schedule, faults=Faults(0.1, 0.01, 1.5, 35.0, 9.0), timeout=5.0)


def alone(seed: int) -> GroupSchedule:
    """One worker whose calls are often lost: nobody else changes the table (E5)."""
    return replace(calm(seed, workers=1, roots=4, records=20), faults=Faults(0.2, 0.0, 0.1, 0.0, 0.0))


def commits_at_random(seed: int) -> GroupSchedule:
    """Whatever happens to a group, with a sink that commits (S6)."""
    return replace(random_schedule(seed), is_transactional=True)


def handovers(seed: int) -> GroupSchedule:
    """Workers come and go every few seconds, and nothing else happens: no record may be written twice (E5)."""
    draw = random.Random(seed)
    events = [event(draw.choice(["join", "join", "leave"]), at, 0, draw.random()) for at in range(10, 160, 7)]
    schedule = replace(calm(seed, *events), is_graceful=True, disturbed_seconds=160.0)
    return replace(schedule, faults=Faults(0.0, 0.0, 1.0, 0.0, 0.0), lookahead=draw.choice([None, 60]))


def old_reads(seed: int) -> GroupSchedule:
    """Workers are killed and replaced, and reads that need not be consistent are old (E8)."""
    draw = random.Random(seed)
    events = [event(kind, at, 0, draw.random()) for at in range(15, 120, 10) for kind in ("crash", "join")]
    return replace(calm(seed, *events, roots=7), faults=Faults(0.0, 0.0, 0.1, 0.0, 0.0, MAX_LAG_SECONDS))


def rolling_restarts(seed: int) -> GroupSchedule:
    """All workers are replaced, all at once or one by one, over a slow store (E5)."""
    draw = random.Random(seed)
    kinds = ["join", "leave", "leave", "join", "leave-all", "join"]
    events = [event(kind, 15 * step + draw.uniform(0, 12), 0, draw.random()) for step, kind in enumerate(kinds * 2)]
    schedule = replace(calm(seed, *events, workers=2), is_graceful=True, disturbed_seconds=200.0)
    return replace(schedule, faults=Faults(0.05, 0.0, 1.5, 3.0, 3.0), timeout=5.0)


def reshards(seed: int) -> GroupSchedule:
    """Short shards are split and merged while workers come and go (E7, E8)."""
    draw = random.Random(seed)
    events = [
        event(draw.choice(["reshard", "reshard", "join", "leave"]), at, 0, draw.random()) for at in range(5, 120, 6)
    ]
    schedule = replace(calm(seed, *events, records=12, roots=3), is_graceful=True)
    return replace(schedule, faults=Faults(0.03, 0.0, 1.0, 3.0, 3.0), timeout=5.0, lookahead=60)


def restart_past_retention(seed: int) -> GroupSchedule:
    """All workers are killed while shards are split and merged, and come back when every closed shard has expired (S2, S5)."""
    draw = random.Random(seed)
    events = [event("reshard", at, 0, draw.random()) for at in range(5, 60, 9)]
    later = [
        event("crash-all", 60),
        event("expire", 110),
        event("join", 111),
        event("join", 113),
        event("reshard", 130),
    ]
    schedule = calm(seed, *events, *later, records=draw.choice([12, 60]), roots=3)
    return replace(schedule, disturbed_seconds=160.0, is_transactional=draw.random() < 0.5)


def listed_past_retention(seed: int) -> GroupSchedule:
    """The same, where the ends of shards name no children, and listings lack the newest shards (S3, S5)."""
    return replace(restart_past_retention(seed), names_children=False)


def latest_past_retention(seed: int) -> GroupSchedule:
    """A group that began at LATEST is killed within two seconds, and comes back when records have expired (P3, S5)."""
    draw = random.Random(seed)
    killed = draw.uniform(0.2, 2.0)
    events = [event("crash-all", killed), event("expire", 40), event("join", 41), event("reshard", 70)]
    return replace(calm(seed, *events, records=12, roots=4), is_latest=True, is_transactional=draw.random() < 0.5)


def idle_worker_out_of_reach(seed: int) -> GroupSchedule:
    """A worker says that it will leave, loses the store while all its shards are idle, and one of them is split (E8, W13)."""
    events = [event("leave", 60), event("split", 60.5), event("split", 61, choice=0.5)]
    schedule = calm(2 * seed + 1, *events, workers=2, roots=4, records=36)  # with an even seed it does not say so
    return replace(schedule, traps=(Trap("w0", WORKERS, "cut-off", 60, 19.0),))


def listed_source(seed: int) -> GroupSchedule:
    """The ends of shards name no children, and listings lack a generation for seconds (S3, E7)."""
    return replace(reshards(seed), names_children=False, has_old_listings=True, lookahead=None)


def old_listings(seed: int) -> GroupSchedule:
    """Listings lack a generation for seconds (S2)."""
    return replace(reshards(seed), has_old_listings=True)


def stream_is_made_again(seed: int) -> GroupSchedule:
    """The stream is deleted, and made again with shards of the same ids, while workers come and go (S8, E12)."""
    draw = random.Random(seed)
    deleted = draw.uniform(30, 60)
    made_again = deleted + draw.choice([12, 30, 60])
    before = [event("reshard", at, 0, draw.random()) for at in range(5, 30, draw.choice([7, 12]))]
    moves = [event(draw.choice(["join", "leave"]), draw.uniform(20, 130), 0, draw.random()) for _ in range(5)]
    events = [event("join", 1), *before, *moves, event("delete", deleted), event("make-again", made_again)]
    later = [event("reshard", made_again + draw.uniform(10, 30), 0, draw.random())]
    schedule = replace(calm(seed, *events, *later, records=draw.choice([12, 60]), roots=3), disturbed_seconds=170.0)
    return replace(schedule, names_children=draw.random() < 0.5)


DIRECTED: dict[str, Callable[[int], GroupSchedule]] = TRAPPED | {
    each.__name__: each
    for each in (
        cut_off, cut_off_for_a_lease, sleep_and_wake_offline, pause_and_resume_offline, suspended_for_long, late_answers,
        killed_with_calls_under_way, alone, killed_while_committing, suspended_while_committing, deleted_while_suspended,
        commits_at_random, handovers, old_reads, rolling_restarts, reshards, restart_past_retention, listed_source,
        latest_past_retention, listed_past_retention, idle_worker_out_of_reach, old_listings, stream_is_made_again,
    )
}  # fmt: skip
