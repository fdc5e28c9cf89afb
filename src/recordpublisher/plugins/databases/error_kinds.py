"""Decides what an error of the database means: about the row, permanent, or worth another try."""

import sqlite3

from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError

_NOT_ABOUT_ROWS = ("08", "25", "26", "28", "3D", "40", "42501", "42703", "42P01", "42P05", "53", "55", "57", "58", "XX")
"""Beginnings of SQLSTATE codes (PostgreSQL, appendix A): connection, transaction, prepared statement, right, dropped table, resource."""
_ROW_ERRORS_OF_SQLITE = {
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
}
_PERMANENT = ("28", "3D", "42501")
"""Beginnings of SQLSTATE codes: wrong user or password, unknown database, missing right."""
_PERMANENT_OF_SQLITE = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
}
_PERMANENT_WORDS = (
    "password authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry", "does not support SSL",
    "invalid response to SSL negotiation", "expected authentication request from server",
)  # fmt: skip
"""Messages of PostgreSQL's client library while it connects, when it has no SQLSTATE.

The last two mean that the server is not PostgreSQL.
"""

_WORDS_OF_A_POOLER = ("in statement pooling mode", "unsupported startup parameter")
"""Messages of PgBouncer when it refuses a transaction or a parameter of the URI. They do not contain PgBouncer's name."""
_UNKNOWN_HOST = ("failed to resolve host", "could not translate host name")
"""Messages of psycopg and of the client library."""


def is_about_the_row(error: Exception) -> bool:
    """Return whether the row caused the error of an insert in a savepoint: the connection works, and nothing else is wrong (S7)."""
    if not isinstance(error, DBAPIError):
        return True
    error = first_error(error)
    if error.connection_invalidated or tells_of_changed_table(error):
        return False
    if isinstance(error.orig, sqlite3.Error):
        code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        return code in _ROW_ERRORS_OF_SQLITE
    return not _sqlstate(error).startswith(_NOT_ABOUT_ROWS)


def tells_of_changed_table(error: Exception) -> bool:
    """Return whether the table, or a column of the statement, no longer exists."""
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return str(error.orig).startswith("no such table") or "has no column named" in str(error.orig)
    return _sqlstate(error) in ("42703", "42P01")


def is_permanent(error: DBAPIError) -> bool:
    """Return whether another try cannot help.

    The causes are wrong credentials, missing rights, a missing or invalid database or file, and a pooler that refuses.
    """
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _PERMANENT_OF_SQLITE
    state = _sqlstate(error)
    is_told = (
        not state and isinstance(error, OperationalError) and any(word in str(error.orig) for word in _PERMANENT_WORDS)
    )
    return state.startswith(_PERMANENT) or is_told or is_of_pooler(error)


def is_of_pooler(error: DBAPIError) -> bool:
    """Return whether a pooler refuses something that every transaction needs, or a parameter of the URI."""
    return any(words in str(error.orig) for words in _WORDS_OF_A_POOLER)


def names_unknown_host(error: DBAPIError) -> bool:
    """Return whether DNS does not know the host; False while DNS itself does not answer."""
    words = str(error.orig)
    return any(start in words for start in _UNKNOWN_HOST) and "Temporary failure" not in words


def words_of_lost_connection(error: DBAPIError) -> str | None:
    """Return our message for a session that was ended, or None for other errors.

    The client library says that the server crashed, which is seldom true.
    """
    if _sqlstate(error) != "57P01" and "terminated abnormally" not in str(error.orig):
        return None
    return "the session was ended by the server: by a later start of this job, by an administrator, or because the server stopped"


def is_transient(error: DBAPIError) -> bool:
    """Return whether another try may help."""
    return error.connection_invalidated or isinstance(error, (OperationalError, InterfaceError, InternalError))


def first_error(error: DBAPIError) -> DBAPIError:
    """Return the error that came first.

    If the disk is full, SQLite itself ends the transaction, and then reports that it no longer knows the savepoint.
    """
    first, context = error, error.__context__
    while context is not None and "no such savepoint" in str(first.orig):
        first = context if isinstance(context, DBAPIError) else first
        context = context.__context__
    return first


def _sqlstate(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""
