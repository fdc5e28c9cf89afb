"""What an error of the database means: about the row, permanent, or worth another try."""

import sqlite3

from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError

_NOT_ABOUT_ROWS = ("08", "25", "26", "28", "3D", "40", "42501", "42703", "42P01", "42P05", "53", "55", "57", "58", "XX")
"""SQLSTATE (PostgreSQL, appendix A), by its beginning: connection, transaction, prepared statements, rights, dropped tables, resources."""
_ROW_ERRORS_OF_SQLITE = {
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
}
_PERMANENT = ("28", "3D", "42501")
"""SQLSTATE: the user, the password, the database, a right."""
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
"""Of PostgreSQL's client library while it connects, when it knows no SQLSTATE; the last two: what answers is no PostgreSQL."""

_WORDS_OF_A_POOLER = ("in statement pooling mode", "unsupported startup parameter")
"""Of PgBouncer, which refuses a transaction or a parameter of the URI without its own name."""
_UNKNOWN_HOST = ("failed to resolve host", "could not translate host name")
"""Of psycopg, and of the client library."""


def is_about_the_row(error: Exception) -> bool:
    """Whether the error of an insert in a savepoint is the row's fault: the connection lives, and nothing else is wrong (S7)."""
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
    """Whether the table, or a column of the statement, is not there any more."""
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return str(error.orig).startswith("no such table") or "has no column named" in str(error.orig)
    return _sqlstate(error) in ("42703", "42P01")


def is_permanent(error: DBAPIError) -> bool:
    """Whether another try cannot help: credentials, rights, a database or a file that is not there or not one, a pooler that refuses."""
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _PERMANENT_OF_SQLITE
    state = _sqlstate(error)
    is_told = (
        not state and isinstance(error, OperationalError) and any(word in str(error.orig) for word in _PERMANENT_WORDS)
    )
    return state.startswith(_PERMANENT) or is_told or is_of_pooler(error)


def is_of_pooler(error: DBAPIError) -> bool:
    """Whether a pooler refuses what every transaction needs, or a parameter of the URI."""
    return any(words in str(error.orig) for words in _WORDS_OF_A_POOLER)


def names_unknown_host(error: DBAPIError) -> bool:
    """Whether DNS knows no such host; False while DNS itself does not answer."""
    words = str(error.orig)
    return any(start in words for start in _UNKNOWN_HOST) and "Temporary failure" not in words


def words_of_lost_connection(error: DBAPIError) -> str | None:
    """Return our words for a session that was ended; the client library says that the server crashed, which it seldom has."""
    if _sqlstate(error) != "57P01" and "terminated abnormally" not in str(error.orig):
        return None
    return "the session was ended by the server: by a later start of this job, by an administrator, or because the server stopped"


def is_transient(error: DBAPIError) -> bool:
    """Whether another try may help."""
    return error.connection_invalidated or isinstance(error, (OperationalError, InterfaceError, InternalError))


def first_error(error: DBAPIError) -> DBAPIError:
    """The error that came first: SQLite ends the transaction of a full disk itself, and then knows the savepoint no more."""
    first, context = error, error.__context__
    while context is not None and "no such savepoint" in str(first.orig):
        first = context if isinstance(context, DBAPIError) else first
        context = context.__context__
    return first


def _sqlstate(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""
