"""Defines under which identity a job stores its positions, and the properties of a read that must not act as the job."""

import msgspec

from recordpublisher.fetcher.checkpoints.snapshot_store import SnapshotStore, SubtaskCheckpoints
from recordpublisher.fetcher.checkpoints.subtask_commits import SubtaskCommits
from recordpublisher.fetcher.committing_sink import CommittingSink
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.properties.groups.job import (
    JOB_WORKERS,
    ON_BAD_RECORD,
    SHARD_ASSIGNMENT,
    STATE_URI,
    TRACKER,
    WATERMARK_GROUP,
)
from recordpublisher.publishers.properties.groups.reading import RECORD_PUBLISHER
from recordpublisher.publishers.properties.properties import Properties


class JobIdentity(msgspec.Struct, frozen=True):
    """The name of a job, one of its subtasks, and the place of its positions. Every object that writes positions is made from it.

    - `place`: the store at `flink.state.uri`, or the entries of a sink that keeps positions with its rows.
    """

    name: str | None
    subtask: int
    parallelism: int
    place: ConditionalStore

    def checkpoints(self) -> SubtaskCheckpoints:
        """Return the object that stores a snapshot at each checkpoint."""
        return SubtaskCheckpoints(SnapshotStore(self.place, self.name), self.subtask, self.parallelism)

    def commits(self, sink: CommittingSink, clock: Clock) -> SubtaskCommits:
        """Return the object that commits the rows of `sink` together with a snapshot."""
        return SubtaskCommits(sink, self.place, self.name, self.subtask, self.parallelism, clock)


def as_look(job: Properties) -> Properties:
    """Return the properties of a job for a reader that must not act as the job.

    They have no place of positions, group of workers, watermark tracker or dead letters (bad records are skipped). The reader also polls
    instead of using the job's consumer of enhanced fan-out: its subscriptions would end the job's subscriptions, and its end could
    deregister the consumer.
    """
    is_kept = job.value(ON_BAD_RECORD) != "DEAD_LETTER"
    polled = (RECORD_PUBLISHER,) if job.value(RECORD_PUBLISHER) == "EFO" else ()
    declared = (STATE_URI, SHARD_ASSIGNMENT, JOB_WORKERS, TRACKER, WATERMARK_GROUP, *polled)
    look: dict[str, str | None] = dict.fromkeys((each.key for each in declared), None)
    return job.merged(look if is_kept else {**look, ON_BAD_RECORD.key: "SKIP"})
