"""Positions of earlier versions, which had tables of their own: they are not read, and not passed over either."""

from sqlalchemy import Connection, inspect, text

from recordpublisher.publishers.errors import StateError

TABLES = ("recordpublisher_positions", "recordpublisher_workers")
"""Of versions before 26 November 2026: with a fixed number of subtasks, and of the workers of groups."""


def refuse_earlier_positions(connection: Connection, job: str) -> None:
    """Raises: StateError when an earlier version has left positions of the job, which says how to take them along."""
    for table in filter(inspect(connection).has_table, TABLES):
        found = text(f"SELECT count(*) FROM {table} WHERE job = :job AND snapshot IS NOT NULL")
        if connection.scalar(found, {"job": job}):
            raise StateError(
                f"table {table} has positions of job '{job}' of an earlier version, which this one does not read. With that version "
                "stop the job, and write them into a file: `recordpublisher positions show JOB --json > positions.jsonl`. Then delete "
                f"them, `DELETE FROM {table} WHERE job = '...'`, and `recordpublisher positions import JOB --from file:positions.jsonl` "
                "stores them here"
            )
