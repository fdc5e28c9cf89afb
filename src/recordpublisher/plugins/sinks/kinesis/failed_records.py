"""Reports records that cannot be put: they fail the sink, or go to a callback (K3). `classify_results` decides which records to give up."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.user_code import check_user_function, for_log, refuse_never_run

from .pending_record import PendingRecord

log = logging.getLogger(__name__)


VALIDATION_EXCEPTION = "ValidationException"
"""The service's error code for an invalid record. It would fail the whole call, so records are checked before they are sent."""


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


class FailedRecords:
    """Owns the error that ended the sink, if any, and whether a caller has received it."""

    def __init__(self, stream: str, fails_on_error: bool, callback: Callable[[FailedRecord], None] | None) -> None:
        if callback is not None:
            check_user_function("on_failure", callback, "a plain function of a FailedRecord", is_plain=True)
        self._stream = stream
        self._fails_on_error = fails_on_error
        self._callback = callback
        self._keep: Callable[[PendingRecord, str], None] | None = None
        self._has_warned = False
        self.error: BaseException | None = None
        self.was_raised = False
        self._on_failed: Callable[[], None] | None = None

    def keep_failed(self, keep: Callable[[PendingRecord, str], None]) -> None:
        """Pass records that cannot be put to this function, with the reason, if there is neither `failOnError` nor a callback."""
        self._keep = keep

    def call_when_failed(self, on_failed: Callable[[], None] | None) -> None:
        """Have a function called when the sink has ended. Otherwise the job would learn of the error only at its next call of the sink."""
        self._on_failed = on_failed

    def raise_if_failed(self) -> None:
        """Raise the error that ended the sink, if any. Errors of PutRecords calls reach the caller here (FLINK-9374)."""
        if self.error is not None:
            self.was_raised = True
            raise self.error

    def fail(self, error: BaseException) -> None:
        """End the sink with this error. Later errors are ignored."""
        if self.error is None:
            self.error = error
            if self._on_failed is not None:
                self._on_failed()

    def reject(self, record: PendingRecord, reason: str) -> None:
        """Report an invalid record, which the sink did not accept. The sink continues.

        Raises: SinkError with `failOnError`.
        """
        failed = _failed_record(record, VALIDATION_EXCEPTION, reason)
        if self._fails_on_error:
            raise self._error_for(failed)
        self._call_back(failed, record)

    def give_up(self, record: PendingRecord, code: str, message: str) -> None:
        """Report user records whose retries are used up. With `failOnError` they end the sink, otherwise they go to the callback."""
        for user_record in record.user_records:
            failed = _failed_record(user_record, code, message)
            if self._fails_on_error:
                self.fail(self._error_for(failed))
            else:
                self._call_back(failed, user_record)

    def _call_back(self, failed: FailedRecord, record: PendingRecord) -> None:
        if self._callback is None and self._keep is not None:
            self._keep(record, f"{failed.error_code}: {failed.error_message}")
            return
        if self._callback is None:
            if not self._has_warned:
                log.warning(
                    "%s; no callback is set: later failures are only counted (numRecordsOutErrors)",
                    self._error_for(failed),
                )
            self._has_warned = True
            return
        try:
            refuse_never_run([self._callback(failed)])
        except Exception as error:
            log.exception("on_failure raised an error for %s", failed, exc_info=for_log(error))
            self.fail(error)

    def _error_for(self, failed: FailedRecord) -> SinkError:
        return SinkError(
            f"a record with the partition key {failed.partition_key!r} and {len(failed.data)} bytes of data "
            f"was not put into {self._stream}: {failed.error_code}: {failed.error_message}"
        )


def _failed_record(record: PendingRecord, code: str, message: str) -> FailedRecord:
    return FailedRecord(record.data, record.partition_key, record.explicit_hash_key, code, message, record.context)
