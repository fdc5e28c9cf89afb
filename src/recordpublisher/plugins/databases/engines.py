"""Creates engines for the supported databases, and sets up their sessions for short, fenced transactions."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from recordpublisher.extras import install_command
from recordpublisher.publishers.errors import ConfigurationError

_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
_VALID = "postgresql://user@host/database or sqlite:////path/file.db"
_OF_POSTGRESQL: dict[str, Any] = {"connect_timeout": 10, "prepare_threshold": None}
"""No statement is prepared on the server.

Behind a pooler in transaction mode the next transaction runs in another session, which does not have the statement, or has another client's
statement of the same name.
"""
_LOCK_SECONDS = 30
_IDLE_TIMEOUT_MS = 30_000
"""A session that is idle inside a transaction holds locks, so the server ends it after this time.

A later start of the job does not wait for that: it ends the session of its predecessor (`postgresql_sessions.py`).
"""


def engine_of(uri: str, key: str) -> Engine:
    """Return an engine with one connection, for one thread. It does not connect yet.

    Raises: ConfigurationError if the URI is invalid, names another kind of database, or needs a driver that is not installed. The error
    never shows the password.
    """
    try:
        url = make_url(uri)
        url = url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))
        engine = _engine(url)
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise ConfigurationError(key, uri, _VALID) from None  # without the cause, which may quote the URI
    except ImportError as error:
        reason = f"{error}; {install_command('postgresql')}"
        raise ConfigurationError(key, uri, _VALID, reason=reason) from error
    # The host would contain the end of the password, which errors of the driver would show.
    if "@" in (url.host or ""):
        raise ConfigurationError(key, uri, _VALID, reason="an @ in a password is written %40")
    return engine


def _engine(url: URL) -> Engine:
    dialect = url.get_backend_name()
    if dialect not in ("postgresql", "sqlite") or (dialect == "sqlite" and url.database in (None, "", ":memory:")):
        raise ValueError(dialect)  # A database in memory would not survive a restart.
    arguments = _OF_POSTGRESQL if dialect == "postgresql" else {"timeout": _LOCK_SECONDS}
    # hide_parameters, because rows are the user's data. A message may name the wrong value, but never shows a whole row.
    engine = create_engine(
        url, pool_size=1, max_overflow=0, pool_pre_ping=True, hide_parameters=True, connect_args=arguments
    )
    if dialect == "sqlite":
        _begin_immediately(engine)
    else:
        _drain_pipelines(engine)
    return engine


def _begin_immediately(engine: Engine) -> None:
    """Let SQLite take the write lock when the transaction begins, so that the data it has read does not change before it writes.

    The driver's own transaction control is off, because it would begin transactions too late and commit before savepoints.
    """

    @event.listens_for(engine, "connect")
    def without_implicit_begin(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _drain_pipelines(engine: Engine) -> None:
    """Let PostgreSQL's driver fetch the rest of a pipeline in which a statement failed. Otherwise it would log a warning."""
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
                with suppress(Exception):  # The pipeline was aborted; the first error says why.
                    pipeline.sync()
                raise
        return True


def name_transactions(engine: Engine, name: Callable[[], str]) -> None:
    """Give each transaction in PostgreSQL a name in the list of sessions, and a limit for how long it may be idle.

    Both end with the transaction, because behind a pooler the session then belongs to another client. With SQLite do nothing.
    """
    if engine.dialect.name != "postgresql":
        return
    settings = (
        "SELECT set_config('application_name', %s, true), set_config('idle_in_transaction_session_timeout', %s, true)"
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql(settings, (name(), str(_IDLE_TIMEOUT_MS)))
