"""Connects to PostgreSQL and SQLite (extra `sql`) for the SQL sink, the store and dead letters.

One thread uses the connection. A transaction is repeated after a lost connection, and fails if another try cannot help.
"""

import asyncio
import hashlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from recordpublisher.publishers.errors import ConfigurationError, RetriesExhaustedError, TransientError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.retry_properties import outage_policy
from recordpublisher.publishers.retry import call_with_retries

from ..install_commands import install_command
from ..publishers.safe_text import mask_passwords
from .stores.back_ends import POSTGRESQL, SQLITE, forms_of

try:
    from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
    from sqlalchemy.exc import (
        ArgumentError,
        DBAPIError,
        InterfaceError,
        InternalError,
        NoSuchModuleError,
        OperationalError,
        ProgrammingError,
    )
except ImportError as error:
    raise ImportError(
        f"PostgreSQL needs the extra 'postgresql': {install_command('postgresql')}; SQLite needs only the extra 'sql'"
    ) from error


T = TypeVar("T")
_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_VALID = forms_of([POSTGRESQL, SQLITE])
_POSTGRESQL_ARGUMENTS: dict[str, Any] = {"connect_timeout": 10, "prepare_threshold": None}
"""Arguments of the connection. With them, the driver prepares no statement on the server.

Behind a pooler in transaction mode, the next transaction may run in another session. That session may lack the prepared statement, or have
another client's statement of the same name.
"""
_DEAD_CONNECTION: dict[str, int] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Arguments of the connection that the URI does not have itself. With them, a connection fails after a minute without any packet.

By Linux's defaults a call waits for 15 minutes if its request is lost, and for two hours if its response is lost. That happens after a
suspension, or if a load balancer forgets the connection.
"""
_LOCK_SECONDS = 30
_IDLE_TIMEOUT_MS = 30_000
"""After this time, the server ends a session that is idle inside a transaction, because the session may hold locks.

A later start of the job does not wait for that: it ends the session of its predecessor (`end_sessions`).
"""
_NOT_ABOUT_ROWS = (
    "08",
    "25",
    "26",
    "28",
    "3D",
    "40",
    "42501",
    "42703",
    "42704",
    "42883",
    "42P01",
    "42P05",
    "42P10",
    "53",
    "55",
    "57",
    "58",
    "XX",
)
"""Beginnings of SQLSTATE codes (PostgreSQL, appendix A) for errors that no row has caused."""
_ROW_ERRORS_OF_SQLITE = {
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
}
_WORDS_OF_A_CHANGED_TABLE = (
    "no such table",
    "no such column",
    "has no column named",
    "ON CONFLICT clause does not match",
)
"""Parts of SQLite's messages about a missing table, column or unique index. These errors have no code of their own."""
_PERMANENT = ("28", "3D", "42501")
"""Beginnings of SQLSTATE codes for a wrong user or password, an unknown database and a missing right."""
_PERMANENT_OF_SQLITE = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_CORRUPT,
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
"""Messages of psycopg and of the client library about an unknown host."""


class Database:
    """One connection to a database. It owns an engine of SQLAlchemy, and the only thread that uses this engine.

    A call waits until the previous one has ended, even if that call was cancelled, so two calls never use the connection at the same time.

    - `key`: the property that has the URI.

    Raises: ConfigurationError if the URI is invalid, or if the driver is not installed.
    """

    def __init__(self, uri: str, key: str, properties: Properties) -> None:
        self._session_name = "recordpublisher"
        self._key, self._shown_uri = key, mask_passwords(uri)
        self._engine = engine_of(uri, key)
        name_transactions(self._engine, lambda: self._session_name)
        self._policy = outage_policy(properties, base_ms=200)
        self._has_connected = False
        self._thread: ThreadPoolExecutor | None = None
        self._disposal: Future[None] | None = None
        """The task that closes the last thread's connection."""

    def name_session(self, name: str) -> None:
        """Set the `application_name` of the next transactions in PostgreSQL."""
        self._session_name = name

    async def transaction(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in the thread, in a transaction of its own, and return its result. An exception rolls everything back.

        After a lost connection or a lock timeout `work` runs again, for up to `flink.job.max.outage`. The first commit may have succeeded
        although its response was lost, so `work` must check that.

        Raises: RetriesExhaustedError if the database does not answer, or refuses a user whom it has accepted before, for
        `flink.job.max.outage`; ConfigurationError if it refuses the first connection or the statements; any other error of `work`.
        """
        try:
            return await call_with_retries(
                lambda: self.in_thread(lambda: self._attempt(work)),
                self._policy,
                needs_few=self._may_be_mistyped,
                service=self._shown_uri,
            )
        except RetriesExhaustedError as error:
            if isinstance(error.__cause__, TransientError) and self._may_be_mistyped(error.__cause__):
                raise RetriesExhaustedError(f"{error.__cause__}. Check the host in the URI") from error.__cause__
            raise

    @property
    def place(self) -> str:
        """The kind of the database, its address and its name. It does not change with the user, the password or options."""
        url = self._engine.url
        if url.get_backend_name() == "sqlite":
            return f"sqlite:///{Path(url.database or '').absolute()}"
        return f"{url.get_backend_name()}://{url.host or ''}{f':{url.port}' if url.port else ''}/{url.database or ''}"

    def exists(self) -> bool:
        """Return whether the database exists, without creating it. False only for a missing SQLite file."""
        url = self._engine.url
        return url.get_backend_name() != "sqlite" or not url.database or Path(url.database).exists()

    def check_folder(self) -> None:
        """Check that the folder of a SQLite file exists, because a connection would not create it.

        Raises: ConfigurationError if it does not exist.
        """
        url = self._engine.url
        folder = Path(url.database or "").absolute().parent
        if url.get_backend_name() == "sqlite" and "uri" not in url.query and not folder.is_dir():
            reason = f"the folder {folder} does not exist"
            raise ConfigurationError(self._key, self._shown_uri, "a file in a folder that exists", reason=reason)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run blocking work in the thread, after all calls before it."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recordpublisher-sql")
            if self._disposal is not None:
                # The new thread first waits until the last one has closed the only connection.
                self._thread.submit(wait, [self._disposal])
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Close the connection after the running work, and end the thread. The next call makes a new connection and thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._disposal = thread.submit(self._engine.dispose)
        try:
            # Shielded, because a cancellation would cancel the disposal too, while the thread still has other work.
            await asyncio.shield(asyncio.wrap_future(self._disposal))
        finally:
            thread.shutdown(wait=False)

    def _may_be_mistyped(self, error: TransientError) -> bool:
        cause = error.__cause__
        return not self._has_connected and isinstance(cause, DBAPIError) and names_unknown_host(cause)

    def _attempt(self, work: Callable[[Connection], T]) -> T:
        is_connected = False
        try:
            with self._engine.begin() as connection:
                is_connected = self._has_connected = True
                return work(connection)
        except DBAPIError as raised:
            error = first_error(raised)
            # Who was let in before is probably let in again: while its password is changed, the new value may come a moment later.
            was_let_in = self._has_connected and not is_connected and _is_login_refused(error)
            if (is_permanent(error) and not was_let_in) or isinstance(error, ProgrammingError):
                valid = "a database that this user can open, and in which the tables can be created and written"
                reason = str(error.orig).strip().partition("\n")[0]  # The statement follows on the next lines.
                if is_refused_by_pooler(error):
                    reason += "; PgBouncer refused it: set its pool_mode to transaction or session, and remove such parameters from the URI"
                raise ConfigurationError(self._key, self._shown_uri, valid, reason=reason) from error
            if is_transient(error):
                place = f"a transaction in {self._shown_uri}"
                message = message_of_ended_session(error) or " ".join(str(error.orig).split())
                raise TransientError(place, type(error.orig).__name__, message) from error
            raise


def engine_of(uri: str, key: str) -> Engine:
    """Return an engine with one connection, for one thread. It does not connect yet.

    Raises: ConfigurationError if the URI is invalid, names another kind of database, or needs a driver that is not installed. The error
    never shows the password.
    """
    dialect, _, driver = uri.partition("://")[0].partition("+")
    if driver not in ("", "psycopg", "pysqlite") and dialect in ("postgresql", "postgres", "sqlite"):
        # The URI may be that of an application, which uses the database with another driver.
        raise ConfigurationError(key, uri, _VALID, reason=f"the driver {driver} is not used here: leave out +{driver}")
    try:
        url = make_url(uri)
        url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
        engine = _engine(url)
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise ConfigurationError(key, uri, _VALID) from None  # The cause may quote the URI with its password.
    except ImportError as error:
        reason = f"{error}; {install_command('postgresql')}"
        raise ConfigurationError(key, uri, _VALID, reason=reason) from error
    # With an unescaped @, the end of the password is taken for the host, which the driver shows in errors.
    if "@" in (url.host or ""):
        raise ConfigurationError(key, uri, _VALID, reason="an @ in a password must be written as %40")
    return engine


def _engine(url: URL) -> Engine:
    dialect = url.get_backend_name()
    if dialect not in ("postgresql", "sqlite") or (dialect == "sqlite" and url.database in (None, "", ":memory:")):
        raise ValueError(dialect)  # A database in memory would not survive a restart.
    arguments: dict[str, Any] = {"timeout": _LOCK_SECONDS}
    if dialect == "postgresql":
        limits = {name: value for name, value in _DEAD_CONNECTION.items() if name not in url.query}
        arguments = _POSTGRESQL_ARGUMENTS | limits
    # Parameters are hidden because rows are the user's data. A message may name the wrong value, but never shows a whole row.
    engine = create_engine(
        url, pool_size=1, max_overflow=0, pool_pre_ping=True, hide_parameters=True, connect_args=arguments
    )
    if dialect == "sqlite":
        _begin_immediately(engine)
    else:
        _drain_pipelines(engine)
    return engine


def _begin_immediately(engine: Engine) -> None:
    """Let SQLite take the write lock when a transaction begins, so that the data that a transaction reads does not change before it writes.

    The driver's own transaction control is off, because it would begin transactions too late and commit before savepoints.
    """

    @event.listens_for(engine, "connect")
    def without_implicit_begin(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _drain_pipelines(engine: Engine) -> None:
    """Make PostgreSQL's driver fetch the remaining results of a pipeline in which a statement failed. Otherwise it would log a warning."""
    from psycopg import Pipeline  # imported here because only PostgreSQL needs it

    if not Pipeline.is_supported():  # The client library is too old.
        return

    @event.listens_for(engine, "do_executemany")
    def executemany(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
        with cursor.connection.pipeline() as pipeline:
            try:
                cursor.executemany(statement, parameters)
                pipeline.sync()
            except Exception:
                with suppress(Exception):  # The pipeline was aborted, and the error of its first statement says why.
                    pipeline.sync()
                raise
        return True


def name_transactions(engine: Engine, name: Callable[[], str]) -> None:
    """Give each transaction in PostgreSQL a name in the list of sessions, and a limit for how long it may be idle. With SQLite do nothing.

    - `name`: returns the name of the next transaction.

    The name and the limit end with the transaction, because behind a pooler the session may then belong to another client.
    """
    if engine.dialect.name != "postgresql":
        return
    settings = (
        "SELECT set_config('application_name', %s, true), set_config('idle_in_transaction_session_timeout', %s, true)"
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql(settings, (name(), str(_IDLE_TIMEOUT_MS)))


def session_prefix(table: str, job: str) -> str:
    """Return how the names of a job's database sessions begin (`application_name`). PostgreSQL cuts such a name at 63 characters."""
    return f"recordpublisher {hashlib.sha256(f'{table} {job}'.encode()).hexdigest()[:20]}"


def end_sessions(connection: Connection, name: str) -> None:
    """End the sessions that run a transaction with this name (`name_transactions`). With SQLite do nothing.

    A process that is suspended in the middle of a commit would hold its locks until it resumes. The server does not end such a session
    itself, because it is not idle.
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


def is_about_the_row(error: Exception) -> bool:
    """Return whether an insert failed because of its row. False if the connection, the server or the table is the cause."""
    if not isinstance(error, DBAPIError):
        return True
    error = first_error(error)
    if error.connection_invalidated or is_of_changed_table(error):
        return False
    if isinstance(error.orig, sqlite3.Error):
        code = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        return code in _ROW_ERRORS_OF_SQLITE
    return not _sqlstate(error).startswith(_NOT_ABOUT_ROWS)


def is_of_changed_table(error: Exception) -> bool:
    """Return whether the table, or a column or unique index of the statement, no longer exists. Then every row is refused."""
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return any(words in str(error.orig) for words in _WORDS_OF_A_CHANGED_TABLE)
    return _sqlstate(error) in ("42703", "42P01", "42P10")


def is_permanent(error: DBAPIError) -> bool:
    """Return whether another try cannot help.

    The causes are wrong credentials, missing rights, a missing or invalid database or file, and a pooler that refuses.
    """
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _PERMANENT_OF_SQLITE
    state = _sqlstate(error)
    # While it connects, the client library reports errors of the server without a SQLSTATE.
    is_refused = (
        not state and isinstance(error, OperationalError) and any(word in str(error.orig) for word in _PERMANENT_WORDS)
    )
    return state.startswith(_PERMANENT) or is_refused or is_refused_by_pooler(error)


def _is_login_refused(error: DBAPIError) -> bool:
    """Return whether PostgreSQL has refused the user, the password or the database of a connection."""
    is_sqlite = isinstance(error.orig, sqlite3.Error)
    return (
        not is_sqlite
        and isinstance(error, OperationalError)
        and is_permanent(error)
        and not is_refused_by_pooler(error)
    )


def is_refused_by_pooler(error: DBAPIError) -> bool:
    """Return whether a pooler refuses something that every transaction needs, or a parameter of the URI."""
    return any(words in str(error.orig) for words in _WORDS_OF_A_POOLER)


def names_unknown_host(error: DBAPIError) -> bool:
    """Return whether DNS does not know the host; False while DNS itself does not answer."""
    words = str(error.orig)
    return any(start in words for start in _UNKNOWN_HOST) and "Temporary failure" not in words


def message_of_ended_session(error: DBAPIError) -> str | None:
    """Return our message for a session that was ended, or None for other errors.

    The client library says that the server crashed. That is seldom true.
    """
    if _sqlstate(error) != "57P01" and "terminated abnormally" not in str(error.orig):
        return None
    return "the server ended the session: a later start of this job or an administrator asked for it, or the server stopped"


def is_transient(error: DBAPIError) -> bool:
    """Return whether another try may help."""
    return error.connection_invalidated or isinstance(error, (OperationalError, InterfaceError, InternalError))


def first_error(error: DBAPIError) -> DBAPIError:
    """Return the error that was raised first, because a later one can hide it.

    If the disk is full, for example, SQLite itself ends the transaction, and then reports that it does not know the savepoint.
    """
    first, context = error, error.__context__
    while context is not None and "no such savepoint" in str(first.orig):
        first = context if isinstance(context, DBAPIError) else first
        context = context.__context__
    return first


def _sqlstate(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""
