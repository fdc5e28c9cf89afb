"""The records that the service has not acknowledged yet, the calls that wait for them, and the records that failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from recordpublisher.plugins.sinks.queued_writes import SourceShard
from recordpublisher.publishers.aggregation.kpl_format import hash_key_of
from recordpublisher.publishers.errors import InvalidRecordError, RecordPublisherError, SinkError
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.retry import duration_words
from recordpublisher.publishers.safe_text import counted
from recordpublisher.publishers.service_limits import PARTITION_KEY_CHARACTERS
from recordpublisher.publishers.shards import Shard, hash_key_from
from recordpublisher.publishers.skipped_records_log import SkippedRecordsLog
from recordpublisher.publishers.user_code import (
    check_user_function,
    describe_error,
    raised_line,
    refuse_unrun_results,
)

from .sink_settings import KinesisSinkCounters

log = logging.getLogger("recordpublisher.producer")
KEY_CHARACTERS = 60
"""Number of characters of a partition key that a message shows."""
CLOSED = "SinkClosed"
"""The error code of a record that was not acknowledged before the sink was closed in an outage."""
VALIDATION_EXCEPTION = "ValidationException"
"""The service's error code for an invalid record. It would fail the whole call, so records are checked before they are sent."""


class PendingRecord(msgspec.Struct, gc=False):
    """One user record, or an aggregate of several (`parts`).

    - `size`: bytes of data and key, as the service counts them.
    - `epoch`: the number of flushes requested before the record was accepted.
    - `attempts`: consecutive failed attempts.
    - `failed_at`: time of the last failed attempt (seconds of the clock); None if none has failed. In an outage of the shard, attempts of
      earlier records count too, because this record waits for them.
    - `failing_for`: seconds for which the attempts have failed.
    - `source`: the shard that a job has read the record from; None if no job has read it.
    - `origin`: the record that was read, and its shard, if the job writes a dead letter of a record that cannot be put.
    - `context`: given to `put`, for the `FailedRecord` of a record that cannot be put.
    """

    data: bytes
    partition_key: str
    explicit_hash_key: str | None
    size: int
    epoch: int = 0
    attempts: int = 0
    failed_at: float | None = None
    failing_for: float = 0.0
    parts: tuple[PendingRecord, ...] = ()
    source: SourceShard | None = None
    origin: tuple[Shard, UserRecord] | None = None
    context: object = None

    @property
    def user_records(self) -> tuple[PendingRecord, ...]:
        """The user records that this Kinesis record contains."""
        return self.parts or (self,)

    @property
    def is_revoked(self) -> bool:
        """Whether another process reads the shard of this user record, and puts the record."""
        return self.source is not None and self.source.is_revoked

    @property
    def hash_key(self) -> int:
        """Number that decides the shard: the explicit hash key, or else the hash of the partition key."""
        return hash_key_of(self.partition_key, self.explicit_hash_key)


def size_of(data: bytes, partition_key: str) -> int:
    """Return the bytes of data and key, as the service counts them."""
    return len(data) + (
        len(partition_key) if partition_key.isascii() else len(partition_key.encode(errors="surrogatepass"))
    )


def is_obviously_valid(record: PendingRecord, max_record_bytes: int) -> bool:
    """Return whether the record has at most `max_record_bytes`, a valid key in ASCII, and no explicit hash key. Such a record is valid.

    This check is cheap, and nearly every record passes it.
    """
    key = record.partition_key
    is_sized = 0 < len(key) <= PARTITION_KEY_CHARACTERS and record.size <= max_record_bytes
    return is_sized and key.isascii() and record.explicit_hash_key is None


def are_obviously_valid(records: Sequence[PendingRecord], max_record_bytes: int) -> bool:
    """Return whether each record passes `is_obviously_valid`, or False if there is no record."""
    keys = [record.partition_key for record in records]
    lengths = [len(key) for key in keys]
    return (
        min(lengths, default=0) > 0
        and max(lengths) <= PARTITION_KEY_CHARACTERS
        and "".join(keys).isascii()
        and max([record.size for record in records]) <= max_record_bytes
        and [record.explicit_hash_key for record in records].count(None) == len(records)
    )


def rejection_reason(record: PendingRecord, max_record_bytes: int) -> str | None:
    """Return why the service would reject this record, and with it the whole call; None if the record is valid."""
    if not 0 < len(record.partition_key) <= PARTITION_KEY_CHARACTERS:
        return f"its partition key has {len(record.partition_key)} characters, but 1 to {PARTITION_KEY_CHARACTERS} are allowed"
    if not _is_unicode(record.partition_key):
        return f"its partition key {record.partition_key!a} has half a surrogate pair, which is not valid UTF-8"
    if record.size > max_record_bytes:
        return f"data and key have {record.size} bytes, but the stream accepts at most {max_record_bytes} (MaxRecordSizeInKiB)"
    explicit = record.explicit_hash_key
    if explicit is not None and not _is_hash_key(explicit):
        return f"its explicit hash key is {short_key(explicit)}, but must be a decimal number from 0 to 2^128 - 1"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_hash_key(text: str) -> bool:
    return hash_key_from(text) is not None and (text == "0" or not text.startswith("0"))


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A user record that was not put, with the error code and message of the service or of the sink.

    `context`: the `context` that `KinesisSink.put` got with the record.
    """

    data: bytes = field(repr=False)
    partition_key: str
    explicit_hash_key: str | None
    error_code: str
    error_message: str
    context: Any = field(default=None, repr=False)


class AwaitedRecords:
    """Knows which calls of `put` wait for the acknowledgement of their record. Each of these calls has a future until it returns."""

    def __init__(self) -> None:
        self._futures: dict[int, asyncio.Future[None]] = {}
        """The futures of the calls that wait, by the `id` of their records. A call keeps its record alive."""

    def __bool__(self) -> bool:
        """Return whether any call waits."""
        return bool(self._futures)

    async def wait(self, record: PendingRecord) -> None:
        """Return when the record is acknowledged. Raises: SinkError if it was given up, or if the sink was closed without a flush."""
        future = self._futures[id(record)] = asyncio.get_running_loop().create_future()
        try:
            await future
        finally:
            del self._futures[id(record)]

    def acknowledge(self, records: Iterable[PendingRecord]) -> None:
        """Let the calls that wait for these records return."""
        for record in records:
            if (future := self._futures.get(id(record))) is not None and not future.done():
                future.set_result(None)

    def fail(self, record: PendingRecord, error: BaseException) -> bool:
        """Raise the error in the call that waits for a record. Return False if no call waits for it."""
        future = self._futures.get(id(record))
        if future is None or future.done():
            return False
        future.set_exception(error)
        future.exception()  # Marks it as retrieved, because the call may be cancelled before it raises the error.
        return True

    def fail_all(self, reason: str) -> None:
        """Raise a SinkError in every call that waits. The records of these calls were accepted."""
        for future in self._futures.values():
            if not future.done():
                future.set_exception(SinkError(reason))
                future.exception()


class FailedRecords:
    """Reports records that could not be put, and the error that ended the sink.

    In a job a record that is given up ends the sink, because positions must not move past it. Outside of a job the sink continues: the
    record goes to the callback, or the next call raises an error with the number of these records.

    - `decided_by`: key of the property that limits the retries.
    - `unacknowledged`: returns how many accepted records are not acknowledged.
    """

    def __init__(
        self,
        stream: str,
        fails_on_error: bool,
        callback: Callable[[FailedRecord], None] | None,
        metrics: KinesisSinkCounters,
        decided_by: str = "",
        unacknowledged: Callable[[], int] = lambda: 0,
    ) -> None:
        if callback is not None:
            valid = "a plain function of a FailedRecord"
            check_user_function("on_failure", callback, valid, is_plain=True, arguments=1)
        self._stream = stream
        self._fails_on_error = fails_on_error
        self._callback = callback
        self._metrics = metrics
        self._callback_errors = SkippedRecordsLog(log, level=logging.ERROR)
        self._decided_by, self._unacknowledged = decided_by, unacknowledged
        self._keep: Callable[[PendingRecord, str], None] | None = None
        self.awaited = AwaitedRecords()
        self._has_warned = False
        self.continues = False
        """Whether the sink continues after it has given up a record, as outside of a job."""
        self.error: BaseException | None = None
        """The error that ended the sink."""
        self.was_raised = False
        """Whether a caller has received the error that ended the sink."""
        self.must_raise = False
        """Whether the next call raises an error. An attribute is cheaper than a call, and each `put` reads it."""
        self.known = 0
        """Number of records given up that an error has reported to a caller."""
        self._given_up = 0
        self._last_given_up: tuple[FailedRecord, PendingRecord] | None = None
        self._on_failed: Callable[[], None] | None = None

    def keep_failed(self, keep: Callable[[PendingRecord, str], None] | None) -> None:
        """Set the function that gets each record that cannot be put, with the reason. None removes the function.

        The function is called only if there is neither `failOnError` nor a callback.
        """
        self._keep = keep

    def begin(self, on_failed: Callable[[], None] | None, *, continues: bool) -> None:
        """Set what a failure does, and forget the error that ended an earlier use of the sink. Called before records are accepted.

        - `on_failed`: called when an error has ended the sink.
        - `continues`: whether the sink continues after it has given up a record, as outside of a job.
        """
        self._on_failed, self.continues = on_failed, continues
        self.error, self.was_raised = None, False
        self.must_raise = self._given_up > self.known

    @property
    def ends_sink(self) -> bool:
        """Whether the first record that is given up ends the sink."""
        return self._fails_on_error and not self.continues

    def raise_if_ended(self) -> None:
        """Raise the error that ended the sink, if any. Errors of PutRecords calls reach the caller here."""
        if self.error is not None:
            self.was_raised = True
            raise self.error

    def take_untold_error(self) -> BaseException | None:
        """Return the error that ended the sink, if no caller has received it yet. Later calls return None.

        With a callback always return None, because the callback has received the records.
        """
        if self.was_raised or self._callback is not None:
            return None
        self.was_raised = self.error is not None
        return self.error

    def raise_if_failed(self, known: int | None = None) -> None:
        """Raise the error that ended the sink, or else an error about the records that were given up and not reported yet.

        - `known`: the number of records given up before a flush began. If it is set, all records given up since then are reported, even
          if another call has reported them.
        """
        self.raise_if_ended()
        count = self._given_up - (self.known if known is None else known)
        if count and self._last_given_up is not None:
            self.known, self.must_raise = self._given_up, False
            failed, record = self._last_given_up
            raise self._error_for(
                failed, self._tried(failed, record), f". Not put since the last error: {counted(count, 'record')}"
            )

    def fail(self, error: BaseException) -> None:
        """End the sink with this error. Later errors are ignored. Outside of a job the message gets the number of lost records."""
        if self.error is None:
            if self.continues and isinstance(error, RecordPublisherError) and self._unacknowledged():
                error.args = (f"{error}{self._end()}",)
            self.error, self.must_raise = error, True
            if self._on_failed is not None:
                self._on_failed()

    def reject(self, record: PendingRecord, reason: str, *, is_awaited: bool = False) -> None:
        """Report an invalid record, which the sink did not accept. The sink continues.

        Raises: InvalidRecordError with `failOnError`, or if the call would wait for the record (`is_awaited`).
        """
        failed = _failed_record(record, VALIDATION_EXCEPTION, reason)
        if not self._fails_on_error:
            self._call_back(failed, record)
        if self._fails_on_error or is_awaited:
            raise InvalidRecordError(str(self._error_for(failed)))

    def give_up(self, record: PendingRecord, code: str, message: str) -> None:
        """Report user records whose retries are used up. In a job with `failOnError` they end the sink.

        Records of a revoked shard are not reported, because the next reader of that shard puts them.

        The call that waits for a record gets the error. Without a callback, a `flush` that has waited for the record raises an error as
        well.
        """
        for user_record in record.user_records:
            if user_record.is_revoked:
                continue
            failed = _failed_record(user_record, code, message)
            is_told = self.awaited and self.awaited.fail(
                user_record, self._error_for(failed, self._tried(failed, record))
            )
            if is_told and self._callback is None:
                self._given_up, self.known, self._last_given_up = self._given_up + 1, self.known + 1, (failed, record)
            elif not self._fails_on_error or (self.continues and self._callback is not None):
                self._call_back(failed, user_record)
            elif self.continues:
                self._given_up += 1
                self._last_given_up, self.must_raise = (failed, record), True
            elif self.error is None:
                self.fail(self._error_for(failed, self._tried(failed, record), self._end()))

    def _call_back(self, failed: FailedRecord, record: PendingRecord) -> None:
        if self._callback is None and self._keep is not None:
            self._keep(record, f"{failed.error_code}: {failed.error_message}")
            return
        if self._callback is None:
            if not self._has_warned:
                log.warning(
                    "%s. Later records that are not put are only counted (numRecordsOutErrors), because no on_failure is set",
                    self._error_for(failed),
                )
            self._has_warned = True
            return
        try:
            refuse_unrun_results([self._callback(failed)])
        except KeyboardInterrupt:  # It may be Ctrl-C.
            raise
        # A CancelledError would end the sending task silently, and a SystemExit would end the event loop of a Producer.
        except BaseException as error:
            self._on_callback_error(failed, error)

    def _on_callback_error(self, failed: FailedRecord, error: BaseException) -> None:
        """Log and count an error of the callback. In a job the error ends the sink, so that a restart puts the record again."""
        self._metrics.add("callbackErrors")
        why = f"not put into {self._stream} ({failed.error_code})"
        record = f"a record with the partition key {short_key(failed.partition_key)}, {why}"
        what = f"{describe_error(error)}, at {raised_line(error)}"
        self._callback_errors.skipped(record, what, error, how="on_failure raised an error for")
        if not self.continues:
            self.fail(error)

    def _tried(self, failed: FailedRecord, record: PendingRecord) -> str:
        """Return, for a message, how long the sink tried to put the record, and the property that sets the limit."""
        limit = f" ({self._decided_by} decides)" if self._decided_by and failed.error_code != CLOSED else ""
        if record.attempts < 2:
            waited = duration_words(record.failing_for)
            return f", which waited for {waited} behind others{limit}," if record.failing_for else ""
        return f", which was tried {record.attempts} times for {duration_words(record.failing_for)}{limit},"

    def _end(self) -> str:
        """Return, for a message, how many records may be missing in the stream."""
        return f". The sink ends; accepted and not acknowledged: {counted(self._unacknowledged(), 'record')}"

    def _error_for(self, failed: FailedRecord, tried: str = "", end: str = "") -> SinkError:
        return SinkError(
            f"a record with the partition key {short_key(failed.partition_key)} and {counted(len(failed.data), 'byte')} of data{tried} "
            f"was not put into {self._stream}: {failed.error_code}: {failed.error_message}{end}"
        )


def short_key(key: str) -> str:
    """Return a partition key for a message, cut if it is long."""
    return f"{key!r}" if len(key) <= KEY_CHARACTERS else f"{key[:KEY_CHARACTERS]!r}... ({len(key)} characters)"


def _failed_record(record: PendingRecord, code: str, message: str) -> FailedRecord:
    return FailedRecord(record.data, record.partition_key, record.explicit_hash_key, code, message, record.context)
