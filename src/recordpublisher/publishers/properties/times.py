"""A time as every setting and argument takes it: ISO-8601, epoch seconds or epoch milliseconds."""

import math
import re
from datetime import UTC, datetime

A_TIME = "2026-11-22T06:00:00Z (UTC without a zone), or epoch seconds"
"""What `epoch_ms` takes, for messages."""
_MILLIS_FROM = 1e11
"""A number from here on is in milliseconds: as seconds it would be after the year 5000, and below it milliseconds are before 1974."""
OTHER_NAMES = {"earliest": "TRIM_HORIZON"}
"""What Kafka calls a place in a stream, lower case, and what Kinesis calls it."""
_NUMBER = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?")


def other_name(given: object) -> str:
    """What to say of Kafka's name of a place; empty for anything else."""
    ours = OTHER_NAMES.get(str(given).strip().lower())
    return f"Kinesis calls it {ours}" if ours else ""


def has_no_zone(given: str) -> bool:
    """Whether this is a time in ISO-8601 that names no zone."""
    try:
        return not _NUMBER.fullmatch(given) and datetime.fromisoformat(given).tzinfo is None
    except ValueError:
        return False


def epoch_ms(given: str) -> int:
    """Epoch ms. Raises: ValueError, OverflowError."""
    if _NUMBER.fullmatch(given):
        number = float(given)
        return checked_ms(number if number >= _MILLIS_FROM else number * 1000)
    return datetime_ms(datetime.fromisoformat(given))


def datetime_ms(moment: datetime) -> int:
    """Epoch ms of a time, in UTC if it has no zone. Raises: ValueError before 1970."""
    return checked_ms((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def iso_time(epoch_ms: int) -> str:
    """Epoch ms as ISO-8601 in UTC; the number itself for what is outside the years 1 to 9999."""
    try:
        moment = datetime.fromtimestamp(epoch_ms / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return str(epoch_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def checked_ms(given: float) -> int:
    """Rounded. Raises: ValueError for what is no time since 1970."""
    if not math.isfinite(given) or given < 0:
        raise ValueError(given)
    return round(given)
