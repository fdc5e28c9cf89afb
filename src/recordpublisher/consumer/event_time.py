"""Event times of records: timestamp assigners (arrival by default), and the check that a time can be used (W12)."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, Protocol

import msgspec

from recordpublisher.publishers.errors import PluginError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import Record, RecordBatch
from recordpublisher.publishers.safe_text import repr_of
from recordpublisher.publishers.user_code import check_user_function

from ..publishers.log_fields import log_extra
from ..publishers.properties.job_properties import FUTURE_LIMIT, TIMESTAMP_FIELD
from ..publishers.retry import duration_words
from .deserialization import json_field_decoder

EARLIEST_MS = -62_135_596_800_000
"""0001-01-01T00:00:00Z, the earliest valid event time (epoch ms)."""
LATEST_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the latest valid event time (epoch ms)."""
EARLIEST_PLAUSIBLE_MS, DAY_MS = 946_684_800_000, 86_400_000
"""2000-01-01T00:00:00Z (epoch ms), and the length of a day (ms)."""
log = logging.getLogger("recordpublisher.consumer")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# The integers of numpy are of the type Real too.
_NUMBERS: Any = Real | Decimal


class TimestampAssigner(Protocol):
    """Returns the event time of each record of a batch (epoch ms).

    A record for which it raises, or returns a time outside the years 1 to 9999, is a bad (poisoned) record.
    """

    @property
    def times_in(self) -> Callable[[Sequence[bytes]], Sequence[int]] | None:
        """A function that returns the event time of each payload; None if event times do not depend on payloads alone."""

    def timestamps(self, batch: RecordBatch) -> Sequence[int]:
        """Return one event time for each record."""


class ArrivalTimestamps:
    """Uses the approximate time of arrival at the service as the event time."""

    times_in = None

    def timestamps(self, batch: RecordBatch) -> Sequence[int]:
        """Return the arrival time of each record (epoch ms)."""
        return batch.arrival_millis


class FunctionTimestamps:
    """Calls a function of the user, which returns the event time of a record (epoch ms).

    Raises: ConfigurationError if the function is async or a generator.
    """

    times_in = None

    def __init__(self, assigner: Callable[[Record], int]) -> None:
        check_user_function("timestamp_assigner", assigner, "a plain function of a Record", is_plain=True)
        self._assigner = assigner

    def timestamps(self, batch: RecordBatch) -> Sequence[int]:
        """Return the function's result for each record."""
        return [int(self._assigner(record)) for record in batch]


class FieldTimestamps:
    """Uses one field of a record as the event time: a top-level field of a JSON payload, or of the decoded value of any other payload.

    A number, or a text of digits, is epoch ms. Other text is ISO-8601, in UTC if it has no time zone, rounded down to ms. A decoded value
    may also have a datetime, or a Timestamp of Protocol Buffers.

    Raises: ConfigurationError if the field's name is invalid.
    """

    def __init__(self, field: str) -> None:
        self._field = field
        self._decode = json_field_decoder(TIMESTAMP_FIELD.key, field, int | float | str)

    def timestamps(self, batch: RecordBatch) -> Sequence[int]:
        """Return the time in the field of each record (epoch ms). Raises: ValueError that names the field, if it is missing or invalid."""
        try:
            return self.times_in(batch.data)
        except ValueError:
            if batch.decoded is None:
                raise
        try:
            return [self._time_of(data, value) for data, value in zip(batch.data, batch.decoded, strict=True)]
        except (TypeError, ValueError, OverflowError) as error:
            raise self._error(error) from error

    def times_in(self, payloads: Sequence[bytes]) -> list[int]:
        """Return the time in the field of each JSON payload (epoch ms).

        Raises: ValueError that names the field, if it is missing or invalid, or if a payload is not JSON.
        """
        try:
            return [at if type(at) is int else _millis(at) for at in [self._decode(data).value for data in payloads]]
        except (msgspec.DecodeError, ValueError, OverflowError) as error:
            raise self._error(error) from error

    def _time_of(self, payload: bytes, value: object) -> int:
        """Return the time in the field of one record. A JSON object decides, even if the decoded value has a default for the field."""
        try:
            is_object = payload.lstrip()[:1] == b"{"
            at = self._decode(payload).value if is_object else _field_of(value, self._field)
        except msgspec.DecodeError:
            # A payload that is not JSON may begin with that byte, or even with a whole JSON object: a line of a log, or several objects.
            if _is_json(payload):
                raise
            at = _field_of(value, self._field)
        return _millis(at)

    def _error(self, reason: Exception) -> ValueError:
        return ValueError(f"no event time in field '{self._field}' ({TIMESTAMP_FIELD.key}): {reason}")


def check_times(times: Sequence[int]) -> None:
    """Check that event times (epoch ms) are in the years 1 to 9999.

    Raises: ValueError if a time is outside these years, because sinks and Spark cannot store such a time.
    """
    for time in (min(times), max(times)):
        if not EARLIEST_MS <= time <= LATEST_MS:
            raise ValueError(
                f"{_short(time)} ms is outside the years 1 to 9999 (UTC): valid is {EARLIEST_MS} to {LATEST_MS}"
            )


def check_arrivals(publisher: str, batch: RecordBatch) -> None:
    """Check the arrival times of the first and the last record.

    Raises: PluginError, which names `publisher`, if one of them is not a time in the years 1 to 9999.
    """
    try:
        arrivals = batch.arrival_millis
        check_times((arrivals[0], arrivals[-1]))
    except (TypeError, ValueError, OverflowError) as error:
        arrivals_given = (record.arrival for record in batch.records)
        wrong = next((each for each in arrivals_given if type(each) not in (int, float)), None)
        reason = f"it is {repr_of(wrong, 60)}" if isinstance(error, TypeError) else error
        raise PluginError(
            f"{publisher} gave a record of {batch.shard.key} without a valid time of arrival: {reason}. `arrival` is in seconds since "
            "1970, with fractions; `arrival_millis` in ms"
        ) from error


class ImplausibleTimes:
    """Logs one warning for a job if an event time is probably wrong: not in ms, or from a clock that is wrong.

    For example, seconds that are read as ms are in January 1970.

    `future_limit_ms`: `flink.watermark.future.limit`; if it is negative, a day is the limit of the warning.
    """

    def __init__(self, future_limit_ms: int) -> None:
        self._limit_ms = future_limit_ms if future_limit_ms >= 0 else DAY_MS
        self._is_capped = future_limit_ms >= 0
        self._has_warned = False

    def look_at(self, batch: RecordBatch, times: Sequence[int]) -> None:
        """Log a warning if an event time is before the year 2000, or further after its record's arrival than the limit."""
        arrivals, limit = batch.arrival_millis, self._limit_ms
        if self._has_warned or (min(times) >= EARLIEST_PLAUSIBLE_MS and max(times) <= min(arrivals) + limit):
            return
        pairs = enumerate(zip(times, arrivals, strict=True))
        found = (each for each, (time, at) in pairs if not EARLIEST_PLAUSIBLE_MS <= time <= at + limit)
        if (index := next(found, None)) is None:
            return
        self._has_warned = True
        # A time in microseconds never gets here: it is after the year 9999, so `check_times` has refused its record.
        hint = "a number is read as epoch ms; if this one is in seconds, multiply it by 1000"
        if times[index] > arrivals[index] + limit:
            hint = f"it is more than {duration_words(limit / 1000)} after the record's arrival, "
            if self._is_capped:
                hint += f"so it counts as the arrival time for watermarks ({FUTURE_LIMIT.key}); futureEventTimes counts such records"
            else:
                hint += f"and moves the watermark as far; {FUTURE_LIMIT.key} limits that"
        log.warning(
            "the event time of record %s of %s was read as %s: %d ms since 1970; %s",
            batch.records[index].sequence_number,
            batch.shard.key,
            (_EPOCH + timedelta(milliseconds=times[index])).isoformat(timespec="milliseconds"),
            times[index],
            hint,
            extra=log_extra(batch.shard.key),
        )


def timestamp_assigner_for(properties: Properties, assigner: Callable[[Record], int] | None) -> TimestampAssigner:
    """Return the timestamp assigner: the user's function if it is given, else the field that the properties name, else the arrival time.

    Raises: ConfigurationError if the function or the field's name is invalid.
    """
    field = properties.value(TIMESTAMP_FIELD)
    if assigner is not None:
        return FunctionTimestamps(assigner)
    return ArrivalTimestamps() if field is None else FieldTimestamps(field)


def _short(number: int) -> str:
    return str(number) if abs(number) < 10**20 else f"a number of {number.bit_length()} bits"


def _field_of(value: object, field: str) -> Any:
    """Return a field of a decoded value, which is a mapping or has attributes. Raises: ValueError if the value has no such field."""
    missing = object()
    if isinstance(value, Mapping):
        found = value[field] if field in value else missing  # noqa: SIM401 - a Struct of Protocol Buffers has no `get`
    else:
        found = missing if _is_unset(value, field) else getattr(value, field, missing)
    if found is missing:
        raise ValueError(
            f"the payload is not a JSON object, and its decoded value ({type(value).__qualname__}) has no such field"
        )
    return found


def _is_unset(value: Any, field: str) -> bool:
    """Return whether a field of a Protocol Buffers message was not sent. Reading it returns a default, such as the year 1970."""
    if not hasattr(value, "HasField"):
        return False
    try:
        return not value.HasField(field)
    except ValueError:  # The messages of this type do not tell whether the field was sent.
        return False


def _is_json(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def _millis(at: Any) -> int:
    """Return a time as epoch ms. Raises: TypeError, ValueError or OverflowError if it is not a time."""
    if isinstance(at, _NUMBERS) and not isinstance(at, bool):
        millis: int = round(at)
        return millis
    if isinstance(at, str):
        if at.isdecimal():  # Checked first, because ISO-8601 would read 1790... as the year 1790.
            return int(at)
        at = datetime.fromisoformat(at)
    elif hasattr(at, "ToDatetime"):  # A Duration of Protocol Buffers has ToMilliseconds too, and is not a time.
        return int(at.ToMilliseconds())
    if not isinstance(at, datetime):
        raise TypeError(f"{repr_of(at, 60)} is not a time")
    return int(((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND)
