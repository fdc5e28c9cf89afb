"""Where a group, or a process that runs alone, stores its documents, and its times."""

import random
from dataclasses import dataclass, field

from ..conditional_store import ConditionalStore
from ..leases.documents.group_store import GroupStore
from ..leases.lease_settings import LeaseSettings


@dataclass(frozen=True, slots=True)
class ElasticGroup:
    """Where a group stores its leases and positions, and its times.

    - `job_name`: the name of the job, if it has one.
    - `chance`: a source of randomness for jitter, and for the names of workers, which are never used again.
    """

    store: ConditionalStore
    settings: LeaseSettings
    job_name: str | None = None
    chance: random.Random = field(default_factory=random.SystemRandom)

    @property
    def documents(self) -> GroupStore:
        """The group's documents. A call takes at most one interval, because a later answer would be useless."""
        return GroupStore(self.store, self.settings.interval)
