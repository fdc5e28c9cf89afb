"""Parses a time as every setting and argument accepts it: ISO-8601 with a zone, epoch seconds or epoch milliseconds."""

import contextlib
import difflib
import re
from datetime import UTC, datetime

A_TIME = "2026-11-22T06:00:00Z, or with another zone, or epoch seconds"
"""The times that `epoch_ms` accepts, for messages."""
MAX_MS = 253_402_300_799_999
"""The end of the year 9999. Microseconds since 1978, nanoseconds and sequence numbers are above it."""
_MILLIS_FROM = 1e11
"""A number from here on is in milliseconds: as seconds it would be after the year 5000, and below it milliseconds are before 1974."""
OTHER_NAMES = {"earliest": "TRIM_HORIZON"}
"""Kafka's name for a position in a stream, in lower case, and Kinesis's name for it."""
_MEANT = dict.fromkeys(("oldest", "beginning", "start", "first", "smallest"), "earliest") | dict.fromkeys(
    ("newest", "end", "now", "last", "largest", "tip"), "LATEST"
)
"""What other words for a position in a stream mean here."""
_SIMILAR = 0.75
_NANOS_FROM, _SEQUENCE_NUMBERS_FROM = 1e17, 1e20
_NUMBER = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?")


def why_no_time(given: object) -> str:
    """Return why `epoch_ms` refuses a value, if that is known (another unit, or no zone), else ""."""
    text = str(given).strip()
    if is_sequence_number(text):
        return "a sequence number is a place in one shard, not a time"
    with contextlib.suppress(ValueError):
        if not _NUMBER.fullmatch(text):
            moment = datetime.fromisoformat(text)
            exact = moment.isoformat()
            return "" if moment.tzinfo else f"it has no zone; write {exact}Z for UTC, or another such as {exact}+01:00"
        if MAX_MS < (number := float(text)) < _SEQUENCE_NUMBERS_FROM:
            unit, per_ms = ("nanoseconds", 1e6) if number >= _NANOS_FROM else ("microseconds", 1e3)
            return f"these may be {unit}; in milliseconds it is {number / per_ms:.0f}"
    return ""


def which_name(given: str, valid: str) -> str:
    """Return which of the names that `valid` begins with was probably meant, as a question, or ""."""
    names = {name.lower(): name for name in valid.partition(" (")[0].split(", ")}
    word = given.strip().lower().replace("-", "_")
    if OTHER_NAMES["earliest"].lower() in names:
        names |= {name: name for name in OTHER_NAMES} | _MEANT
    near = difflib.get_close_matches(word, names, n=1, cutoff=1.0 if word in names else _SIMILAR)
    return f"did you mean '{names[near[0]]}'?" if near else ""


def is_sequence_number(given: str) -> bool:
    """Return whether this is a sequence number: Kinesis's have 56 digits, epoch nanoseconds have 19."""
    return given.isdecimal() and float(given) >= _SEQUENCE_NUMBERS_FROM


def epoch_ms(given: str) -> int:
    """Return a time as epoch ms. Raises: ValueError or OverflowError if it is not a number or a time with a zone, from 1970 to 9999."""
    if _NUMBER.fullmatch(given):
        number = float(given)
        return checked_ms(number if number >= _MILLIS_FROM else number * 1000)
    moment = datetime.fromisoformat(given)
    if moment.tzinfo is None:  # Spark, pandas and databases print times without their zone, which need not be UTC
        raise ValueError(given)
    return datetime_ms(moment)


def datetime_ms(moment: datetime) -> int:
    """Return a time as epoch ms, in UTC if it has no zone. Raises: ValueError if it is before 1970 or after 9999."""
    return checked_ms((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def iso_time(epoch_ms: int) -> str:
    """Return epoch ms as ISO-8601 in UTC, or the number itself if it is outside the years 1 to 9999."""
    try:
        moment = datetime.fromtimestamp(epoch_ms / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return str(epoch_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def checked_ms(given: float) -> int:
    """Return the rounded number. Raises: ValueError if it is not a time from 1970 to 9999."""
    if not 0 <= given <= MAX_MS:
        raise ValueError(given)
    return round(given)
