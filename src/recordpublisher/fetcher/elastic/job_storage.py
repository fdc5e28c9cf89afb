"""Where a job stores its leases and positions, with a group or without (`JobStorage`), and what identifies a job (`group_job_of`).

This module imports no module of workers, so that it loads fast.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.properties.job_properties import JOB_NAME
from recordpublisher.publishers.safe_text import mask_passwords

from ..checkpoints.snapshot_format import ANOTHER_PLACE_OF_SINK, COPY_POSITIONS, PARTS_PREFIX
from ..conditional_store import ConditionalStore
from ..leases.group_store import GroupStore
from ..leases.lease_settings import LeaseSettings
from ..leases.lease_table import GroupJob
from ..pipeline.checked_sink_calls import destination_of
from ..sink import Sink, entry_store_of

if TYPE_CHECKING:
    from ..shards.discovery import StreamList

MOST_NAME_CHARACTERS = 200
"""The longest name of a job that stores positions (characters)."""


@dataclass(frozen=True, slots=True)
class JobStorage:
    """The place where a job stores its leases and positions, and the settings of its heartbeats and leases.

    A process that runs alone has one as well.

    - `store`: the state store (`flink.state.uri`).
    - `job_name`: the name of the job, if it has one.
    - `chance`: a source of randomness, for jitter and for names of workers that are never used again.

    Raises: ConfigurationError if the name is too long.
    """

    store: ConditionalStore
    settings: LeaseSettings
    job_name: str | None = None
    chance: random.Random = field(default_factory=random.SystemRandom)

    def __post_init__(self) -> None:
        # Stored commits name the job, and a document with a longer name could not be read again.
        if self.job_name is not None and len(self.job_name) > MOST_NAME_CHARACTERS:
            raise ConfigurationError(JOB_NAME.key, self.job_name, f"at most {MOST_NAME_CHARACTERS} characters")

    @property
    def documents(self) -> GroupStore:
        """The group's documents: lease table, worker records and positions.

        Each call has a time-out of one interval between heartbeats, because a later answer would be useless.
        """
        return GroupStore(self.store, self.settings.interval)


def group_job_of(streams: StreamList, sink: Sink, name: str | None = None) -> GroupJob:
    """Return the job of this process: what it reads and where it writes. All processes of a group must have the same job.

    `name`: the name of the job.
    """
    names = tuple(sorted(streams)) if streams.is_fixed else None
    # Never empty, because a job without a destination would be taken for that of imported positions, which any job may continue.
    destination = mask_passwords(destination_of(sink)) or type(sink).__name__
    return GroupJob(destination, names, entry_store_of(sink) is not None, name)


async def refuse_positions_in_sink(store: ConditionalStore, entries: ConditionalStore) -> None:
    """Check that the sink stores no positions with its rows, before this job writes the first lease table.

    Such positions belong to a job whose lease table is elsewhere. With a new table this job would write its rows again, or leave some out.

    - `store`: the store of the lease table, which may be `entries` itself.
    - `entries`: the store in which the sink keeps positions.

    Raises: StateError, which names the worker that has stored the positions, if there are any.
    """
    documents = GroupStore(entries)
    for name in await documents.names(PARTS_PREFIX):
        worker = name.removeprefix(PARTS_PREFIX).rpartition("/")[0]
        part = await documents.read_part(worker, 0)
        if part is None or not part.document.positions:
            continue
        # A process that has begun the job in the meantime wrote the table before its first positions.
        if await GroupStore(store).read_table() is not None:
            return
        where = "there" if entries is store else f"in {store.place}"
        raise StateError(
            f"{entries.place} has positions of worker {worker}, whose lease table is not {where}. To continue the job of that "
            "worker, start with its flink.state.uri (none, if it had none); if that store is lost, run "
            f"{COPY_POSITIONS.format(source='')}. For a new job use {ANOTHER_PLACE_OF_SINK}"
        )
