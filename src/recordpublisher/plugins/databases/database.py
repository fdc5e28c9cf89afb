"""One connection to a database in one thread. Transactions are retried when the connection is lost."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, ProgrammingError

from recordpublisher.publishers.errors import ConfigurationError, RetriesExhaustedError, TransientError
from recordpublisher.publishers.password_masking import mask_passwords
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.retry_properties import outage_policy
from recordpublisher.publishers.retry import call_with_retries

from .engines import engine_of, name_transactions
from .error_kinds import (
    first_error,
    is_of_pooler,
    is_permanent,
    is_transient,
    names_unknown_host,
    words_of_lost_connection,
)

T = TypeVar("T")


class Database:
    """Owns an engine and the only thread that ever uses it.

    A pool of threads would not be safe: a cancelled `asyncio.to_thread` leaves its thread running, the next call overlaps it on the same
    connection, and one of them commits or rolls back the other's work. With one thread, a call waits until the previous one has ended, even
    if that call was cancelled.

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

    def name_session(self, name: str) -> None:
        """Set the `application_name` of the next transactions in PostgreSQL."""
        self._session_name = name

    async def transaction(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in the thread, in a transaction of its own, and return its result. An exception rolls everything back.

        After a lost connection or a lock timeout `work` runs again, for up to `flink.job.max.outage`. The first commit may have succeeded
        although its response was lost, so `work` must check that.

        Raises: RetriesExhaustedError if the database does not answer for that long; ConfigurationError if it refuses the user or the
        statements; any other error of `work`.
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
                raise RetriesExhaustedError(f"{error.__cause__}; check the host in its URI") from error.__cause__
            raise

    @property
    def place(self) -> str:
        """The kind of the database, its address and its name. It does not change with the user, the password or options."""
        url = self._engine.url
        if url.get_backend_name() == "sqlite":
            return f"sqlite:///{Path(url.database or '').absolute()}"
        return f"{url.get_backend_name()}://{url.host or ''}{f':{url.port}' if url.port else ''}/{url.database or ''}"

    def exists(self) -> bool:
        """Return False for a file of SQLite that does not exist yet, because a connection would create it; otherwise True."""
        url = self._engine.url
        return url.get_backend_name() != "sqlite" or not url.database or Path(url.database).exists()

    def check_folder(self) -> None:
        """Check that the folder of a SQLite file exists, because a connection would not create it.

        Raises: ConfigurationError if it does not exist.
        """
        url = self._engine.url
        folder = Path(url.database or "").absolute().parent
        if url.get_backend_name() == "sqlite" and "uri" not in url.query and not folder.is_dir():
            reason = f"there is no folder {folder}"
            raise ConfigurationError(self._key, self._shown_uri, "a file in a folder that exists", reason=reason)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run blocking work in the thread, after all calls before it."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="recordpublisher-sql")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Close the connection after the running work, and end the thread. The next call makes a new connection and thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(thread, self._engine.dispose)
        finally:
            thread.shutdown(wait=False)

    def _may_be_mistyped(self, error: TransientError) -> bool:
        cause = error.__cause__
        return not self._has_connected and isinstance(cause, DBAPIError) and names_unknown_host(cause)

    def _attempt(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._engine.begin() as connection:
                self._has_connected = True
                return work(connection)
        except DBAPIError as raised:
            error = first_error(raised)
            if is_permanent(error) or isinstance(error, ProgrammingError):
                valid = "a database that this user can open, and in which the tables can be created and written"
                reason = str(error.orig).strip().partition("\n")[0]  # The statement follows on the next lines.
                if is_of_pooler(error):
                    reason += "; this is PgBouncer: its pool_mode must be transaction or session, and the URI without such parameters"
                raise ConfigurationError(self._key, self._shown_uri, valid, reason=reason) from error
            if is_transient(error):
                place = f"a transaction in {self._shown_uri}"
                message = words_of_lost_connection(error) or " ".join(str(error.orig).split())  # on one line
                raise TransientError(place, type(error.orig).__name__, message) from error
            raise
