"""Finds where a new job starts, from `flink.stream.initpos` and its timestamp."""

import contextlib
import re
from datetime import datetime, timedelta

from .base import MAX_CLOCK_OFFSET_MS
from .errors import ConfigurationError
from .positions import PositionType, StartingPosition
from .properties.properties import Properties
from .properties.reading_properties import INITIAL_POSITION, INITIAL_TIMESTAMP, INITIAL_TIMESTAMP_FORMAT
from .properties.times_and_sizes import TIME_FORMS, datetime_ms, epoch_ms, iso_time, parse_with_unit, why_no_time

_VALID = "epoch seconds (1459799926.480), ISO-8601 with a zone (2016-04-04T19:58:46.480Z), or text in the format of "
_FIELDS = {
    "y": "%Y",
    "M": "%m",
    "d": "%d",
    "H": "%H",
    "m": "%M",
    "s": "%S",
    "S": "%f",
    "X": "%z",
    "Z": "%z",
    "a": "%p",
    "h": "%I",
}
"""SimpleDateFormat's letters, each with the equivalent of `strptime`.

Names of days and months are missing, because they depend on a locale.
"""
_FIELD = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)


def initial_position(properties: Properties) -> StartingPosition:
    """Return where a job without stored positions starts.

    LATEST, and a start at an age (such as `1h`), are replaced by a time later (`StartingPosition.pinned_at`).

    Raises: ConfigurationError if the position or its timestamp is missing or invalid.
    """
    position = properties.value(INITIAL_POSITION)
    if position in (PositionType.TRIM_HORIZON.value, PositionType.LATEST.value):
        return StartingPosition(PositionType(position))
    if (ago_ms := parse_with_unit(position, "ms")) is not None:
        return StartingPosition(PositionType.LATEST, ago_ms=ago_ms)
    is_apart = position == PositionType.AT_TIMESTAMP.value
    return StartingPosition.at_timestamp(initial_timestamp_ms(properties) if is_apart else epoch_ms(position))


START_FORMS = f"TRIM_HORIZON (or earliest), LATEST, an age such as 1h, or a time: {TIME_FORMS}"
"""The values that `named_start` accepts, as text for messages."""


def named_start(name: str, given: datetime | timedelta | str | float, valid: str = START_FORMS) -> StartingPosition:
    """Return the start that a user gave as `given`: a time, an age, or a value of `flink.stream.initpos`.

    - `name`: the name of the argument or option, for the error.
    - `valid`: the valid values, for the error.

    Raises: ConfigurationError if the start is invalid.
    """
    try:
        return initial_position(Properties({INITIAL_POSITION.key: given}))
    except ConfigurationError as error:
        raise ConfigurationError(name, given, valid, reason=error.reason) from None


def passed_initial_position(properties: Properties, now_ms: int) -> StartingPosition:
    """Return where a job without stored positions starts, after a check that this is not in the future.

    Raises: ConfigurationError if the start is invalid, or in the future by this machine's clock (`refuse_future`).
    """
    start = initial_position(properties)
    if start.timestamp_ms is not None:
        is_apart = properties.value(INITIAL_POSITION) == PositionType.AT_TIMESTAMP.value
        refuse_future(INITIAL_TIMESTAMP.key if is_apart else INITIAL_POSITION.key, start.timestamp_ms, now_ms)
    return start


def refuse_future(name: str, at_ms: int, now_ms: int, tolerance_ms: int = MAX_CLOCK_OFFSET_MS) -> None:
    """Check that a start time is not in the future. `tolerance_ms` is how wrong this machine's clock may be.

    Raises: ConfigurationError if it is in the future. The error names the setting `name`.
    """
    if at_ms >= now_ms + tolerance_ms:
        raise ConfigurationError(name, iso_time(at_ms), f"a time that has passed: it is {iso_time(now_ms)} now")


def check_end_time(
    name: str, given: object, end_ms: int, *, start_ms: int | None = None, now_ms: int | None = None, clock: str = ""
) -> None:
    """Check that the end of a read is not before `start_ms`, and not after `now_ms`. A limit that is None is not checked.

    Times are epoch ms. `clock` is the name of the clock that shows `now_ms`, for the error.

    Raises: ConfigurationError if the end is before the start or after now. The error names the setting `name`.
    """
    if start_ms is not None and end_ms < start_ms:
        raise ConfigurationError(
            name, given, "a time that is not before the start", reason="the read would end before it starts"
        )
    if now_ms is not None and end_ms > now_ms:
        reason = f"it lies in the future: {clock} is at {iso_time(now_ms)}"
        raise ConfigurationError(name, given, "NOW, or a time that has passed", reason=reason)


def with_oldest_start(properties: Properties) -> Properties:
    """Return the properties, with a start at TRIM_HORIZON if they have no start."""
    # Without this, a read with an end would start at the tip, which is the default, and would be empty.
    is_given = properties.is_set(INITIAL_POSITION)
    return properties if is_given else properties.merged({INITIAL_POSITION.key: PositionType.TRIM_HORIZON.value})


def initial_timestamp_ms(properties: Properties) -> int:
    """Return the start timestamp that belongs to AT_TIMESTAMP (epoch ms).

    Raises: ConfigurationError if the timestamp is missing or cannot be read.
    """
    given = properties.value(INITIAL_TIMESTAMP)
    valid = _VALID + INITIAL_TIMESTAMP_FORMAT.key
    if given is None:
        raise ConfigurationError(INITIAL_TIMESTAMP.key, valid=valid, reason=f"{INITIAL_POSITION.key} is AT_TIMESTAMP")
    try:
        return _parsed_ms(given, properties)
    except ConfigurationError:
        raise
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(INITIAL_TIMESTAMP.key, given, valid, reason=why_no_time(given)) from error


def time_ms(name: str, given: datetime | str | float, valid: str = TIME_FORMS) -> int:
    """Return the time in the keyword argument `name` (epoch ms).

    Raises: ConfigurationError if the time cannot be read. The error names the argument.
    """
    try:
        return epoch_ms(Properties({name: given})[name])
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(name, given, valid, reason=why_no_time(given)) from error


def age_ms(name: str, given: str) -> int:
    """Return the age in the setting `name` (ms). Raises: ConfigurationError if `given` is not a duration. The error names the setting."""
    found = parse_with_unit(given.strip(), "ms")
    if found is None:
        raise ConfigurationError(name, given, "one number with one unit, such as 90m, 2h or 1d")
    return found


def _parsed_ms(given: str, properties: Properties) -> int:
    """Return the start timestamp in epoch ms. If a format is set, it is tried first (in UTC if it has no zone)."""
    # The format is tried first, as in Flink: `20231114` may be a date by this format, and would otherwise be a number of seconds.
    if properties.is_set(INITIAL_TIMESTAMP_FORMAT):
        pattern = _strptime_format(properties)
        with contextlib.suppress(ValueError):
            return datetime_ms(datetime.strptime(given, pattern))
    return epoch_ms(given)


def _strptime_format(properties: Properties) -> str:
    """Return the Java format of the start timestamp as a format for Python's `strptime`.

    Raises: ConfigurationError if a letter has no equivalent, a field is repeated, or the year is missing.
    """
    java = properties.value(INITIAL_TIMESTAMP_FORMAT)
    parts = [_strptime_part(match, java) for match in _FIELD.finditer(java)]
    twice = {part for part in parts if part in _FIELDS.values() and parts.count(part) > 1}
    if twice:
        letters = ", ".join(letter for letter, part in _FIELDS.items() if part in twice)
        reason = f"a field is repeated, by the letters {letters}"
        raise ConfigurationError(
            INITIAL_TIMESTAMP_FORMAT.key, java, "a SimpleDateFormat with each field once", reason=reason
        )
    if _FIELDS["y"] not in parts:  # Without a year Java would take 1970, and Python 1900 with a DeprecationWarning.
        raise ConfigurationError(
            INITIAL_TIMESTAMP_FORMAT.key,
            java,
            "a SimpleDateFormat with a year",
            reason="there is no year, the letter y",
        )
    return "".join(parts)


def _strptime_part(match: re.Match[str], java: str) -> str:
    quoted, letter, other = match.groups()
    if letter is None:
        literal: str = other or quoted.replace("''", "'") or "'"
        return literal.replace("%", "%%")
    if letter not in _FIELDS:
        valid = f"a SimpleDateFormat of the letters {' '.join(_FIELDS)}"
        raise ConfigurationError(
            INITIAL_TIMESTAMP_FORMAT.key, java, valid, reason=f"the letter {letter} is not supported"
        )
    return _FIELDS[letter]
