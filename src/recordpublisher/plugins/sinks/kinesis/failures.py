"""Records that cannot be put: the sink fails, or a callback is given them (K3)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from recordpublisher.publishers.errors import SinkError

from .pending_record import PendingRecord

log = logging.getLogger(__name__)


VALIDATION_EXCEPTION = "ValidationException"
"""What the service says of a record that it would not take, and of the whole call with it; we look before."""


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A user record that was not put, and why: the service's code and words, or ours for what it would refuse."""

    data: bytes
    partition_key: str
    explicit_hash_key: str | None
    error_code: str
    error_message: str


class FailureHandler:
    """Owns the error that ended the sink, if any, and knows whether somebody was told."""

    def __init__(self, stream: str, fails_on_error: bool, callback: Callable[[FailedRecord], None] | None) -> None:
        self._stream = stream
        self._fails_on_error = fails_on_error
        self._callback = callback
        self._logged = False
        self.error: BaseException | None = None
        self.was_told = False

    def check(self) -> None:
        """Raises: what ended the sink; asynchronous errors surface here (FLINK-9374)."""
        if self.error is not None:
            self.was_told = True
            raise self.error

    def fail(self, error: BaseException) -> None:
        """The sink cannot go on; the first error counts."""
        self.error = self.error or error

    def refuse(self, outgoing: PendingRecord, objection: str) -> None:
        """A record that the service would not take was not taken. Raises: SinkError, by `failOnError`; the sink itself goes on."""
        failed = _failed(outgoing, VALIDATION_EXCEPTION, objection)
        if self._fails_on_error:
            raise self._error_of(failed)
        self._hand_over(failed)

    def give_up(self, outgoing: PendingRecord, code: str, message: str) -> None:
        """User records that cannot be put: by `failOnError` the end of the sink, otherwise handed to the callback."""
        for one in outgoing.user_records:
            failed = _failed(one, code, message)
            if self._fails_on_error:
                self.fail(self._error_of(failed))
            else:
                self._hand_over(failed)

    def _hand_over(self, failed: FailedRecord) -> None:
        if self._callback is None:
            if not self._logged:
                log.warning(
                    "%s; without a callback, later ones are only counted (numRecordsOutErrors)", self._error_of(failed)
                )
            self._logged = True
            return
        try:
            self._callback(failed)
        except Exception as error:
            self.fail(error)

    def _error_of(self, failed: FailedRecord) -> SinkError:
        return SinkError(
            f"a record with the partition key {failed.partition_key!r} and {len(failed.data)} bytes of data "
            f"was not put into {self._stream}: {failed.error_code}: {failed.error_message}"
        )


def _failed(outgoing: PendingRecord, code: str, message: str) -> FailedRecord:
    return FailedRecord(outgoing.data, outgoing.partition_key, outgoing.explicit_hash_key, code, message)
