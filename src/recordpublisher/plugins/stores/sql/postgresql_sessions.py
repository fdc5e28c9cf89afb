"""PostgreSQL sessions: a start ends those of its predecessor, with their locks; and one lock for creating tables."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, text


def session_prefix(table: str, job: str) -> str:
    """What the names of a job's sessions begin with; a name has at most 63 characters."""
    return f"recordpublisher {hashlib.sha256(f'{table} {job}'.encode()).hexdigest()[:20]}"


def end_sessions(connection: Connection, name: str, like: str | None = None, unlike: str | None = None) -> None:
    """End the sessions of that name; with patterns also those that are like the one and not like the other. Nothing with SQLite.

    A process that is suspended in the middle of a commit would hold its locks until it resumes, possibly for ever. (The server ends
    sessions that are idle between two statements, but not those that stopped while sending one.)
    """
    if connection.dialect.name != "postgresql":
        return
    others = " OR (application_name LIKE :like AND application_name NOT LIKE :unlike)" if like and unlike else ""
    connection.execute(
        text(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = current_user"
            f" AND datname = current_database() AND (application_name = :name{others})"
        ),
        {"name": name, "like": like, "unlike": unlike} if others else {"name": name},
    )


def lock_table_creation(connection: Connection, table: str) -> None:
    """One process at a time creates the table and reads what is in it. SQLite's lock is held already."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": table})
