"""Tells apart the positions of a fixed number of subtasks (STATIC) and of a group (ELASTIC) in a conditional store (E10)."""

from typing import NoReturn

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.properties.groups.job import JOB_NAME, SHARD_ASSIGNMENT, STATE_URI

ANOTHER_PLACE = f"another {STATE_URI.key} (in a database: or another {JOB_NAME.key})"
"""The setting to change, in words, for a job that must not share the positions of another one."""
_TAKE_ALONG = (
    "To take the positions along, `recordpublisher positions show JOB --json > positions.jsonl` writes them into a file, and "
    "`recordpublisher positions import JOB --from file:positions.jsonl` reads them there"
)
SUBTASK_PREFIX = "subtask-"
"""The prefix of the names of subtasks' entries."""
LEASE_TABLE = "group/leases"
"""The name of a group's lease table."""

PARTS = "group/positions/"
"""The prefix of the names of a group's positions. If a sink stores the entries, they are stored without a lease table."""


def refuse_other_job(place: str, stored: str | None, given: str | None) -> None:
    """Check that stored positions do not belong to a job with another `flink.job.name`.

    If either job has no name, the positions may belong to this job.

    Raises: StateError if both names are given and differ.
    """
    if stored and given and stored != given:
        raise StateError(
            f"{place} has the positions of job '{stored}', and this is job '{given}', which would continue from these. Give it a place of "
            f"its own ({ANOTHER_PLACE}), or set {JOB_NAME.key}={stored} to continue as that job. {_TAKE_ALONG}"
        )


def refuse_assignment(place: str, stored: str, given: str) -> NoReturn:
    """Raise StateError, because the stored positions belong to the other kind of assignment (E10)."""
    raise StateError(
        f"{place} has the positions of a job with {SHARD_ASSIGNMENT.key}={stored}, and {given} does not continue from these. To continue, "
        f"set -p {SHARD_ASSIGNMENT.key}={stored}; to change to {given}, use {ANOTHER_PLACE}. {_TAKE_ALONG}"
    )
