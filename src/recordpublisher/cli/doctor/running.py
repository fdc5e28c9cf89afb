"""Whether another process runs the same job: what it stores is read twice, as far apart as it stores something. Nothing is taken over."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from recordpublisher.fetcher.checkpoints.assignment_kinds import ANOTHER_PLACE
from recordpublisher.fetcher.elastic.worker_lives import ElasticGroup
from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.lag.stored_positions import PositionsReader
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties.groups.discovery_and_state import CHECKPOINT_INTERVAL
from recordpublisher.publishers.properties.properties import Properties

from .findings import NotCheckedError

MAX_SECONDS = 30.0
"""Doctor watches no longer than this."""
SPARE_SECONDS = 1.0
"""A checkpoint takes time too."""


async def check_generation(positions: PositionsReader, properties: Properties) -> str:
    """With STATIC assignment a start takes the next generation, and whoever has the one before is fenced off (S6).

    Raises: RecordPublisherError that names the subtasks which store checkpoints now.
    """
    before = await positions.load()
    if not before:
        return "no: no positions are stored"
    interval_ms = properties.value(CHECKPOINT_INTERVAL)
    seconds = min(MAX_SECONDS, interval_ms / 1000 + SPARE_SECONDS) if interval_ms > 0 else 0.0
    await asyncio.sleep(seconds)
    after = await positions.load()
    generation = max(int(each["generation"]) for each in after or before)
    if live := [each for each in after if each not in before]:
        raise RecordPublisherError(
            f"{_subtasks(live)} of generation {generation} stores checkpoints: a start here would fence it off, and it would fail. Stop it "
            f"first, or give this job {ANOTHER_PLACE}"
        )
    if interval_ms < 0 or interval_ms / 1000 > MAX_SECONDS:
        raise NotCheckedError(
            f"generation {generation} has stored nothing for {seconds:g} s, and {CHECKPOINT_INTERVAL.key} is {interval_ms}"
        )
    return f"no: generation {generation} has stored nothing for {seconds:g} s; a start takes {generation + 1}"


async def check_group(group: ElasticGroup) -> str:
    """With ELASTIC assignment a process joins the others, which keep running."""
    before = await group.documents.read_records()
    if not before:
        return "no: the group has no workers"
    await asyncio.sleep(group.settings.interval + SPARE_SECONDS)
    after, table = await group.documents.read_records(), await group.documents.read_table()
    live = [
        name
        for name, each in after.items()
        if not each.document.is_sealed and (name not in before or before[name].document.beat != each.document.beat)
    ]
    if not live:
        return "no: no worker of the group sends heartbeats"
    leases = [] if table is None else table.document.leases.values()
    shards = {name: sum(lease.owner == name for lease in leases) for name in sorted(live)}
    named = ", ".join(f"{name} ({count} shards)" for name, count in shards.items())
    return f"yes: worker {named}; a start here joins, and takes its share"


async def check_assignment(group: ElasticGroup) -> str:
    """The group that a process with ELASTIC assignment would join. Raises: StateError when subtasks of STATIC keep positions there."""
    table = await group.documents.read_table()
    if table is not None:
        return f"a group with {len(table.document.leases)} shards and {len(table.document.owners)} workers"
    await group.documents.refuse_subtasks()
    return "reachable, no group yet"


def _subtasks(snapshots: Collection[State]) -> str:
    numbers = sorted(int(each.get("subtask", 0)) for each in snapshots)
    return f"subtask {', '.join(map(str, numbers))}"
