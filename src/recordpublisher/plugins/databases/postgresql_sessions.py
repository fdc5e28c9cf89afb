"""Ends PostgreSQL sessions of a predecessor, which releases their locks, and takes the lock for creating tables."""

import hashlib

from sqlalchemy import Connection, text


def session_prefix(table: str, job: str) -> str:
    """Return the prefix of a job's session names. A name has at most 63 characters."""
    return f"recordpublisher {hashlib.sha256(f'{table} {job}'.encode()).hexdigest()[:20]}"


def end_sessions(connection: Connection, name: str) -> None:
    """End the sessions that run a transaction with this name (`name_transactions`). With SQLite do nothing.

    A process that is suspended in the middle of a commit would hold its locks until it resumes, possibly forever. (The server ends
    sessions that are idle between two statements, but not those that stopped while sending one.)
    """
    if connection.dialect.name != "postgresql":
        return
    connection.execute(
        text(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = current_user"
            " AND datname = current_database() AND application_name = :name"
        ),
        {"name": name},
    )


def lock_table_creation(connection: Connection, table: str) -> None:
    """Let only one process at a time create and read the table. With SQLite the transaction already holds a lock."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": table})
