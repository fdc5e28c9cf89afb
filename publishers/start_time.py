"""Where a new job starts, as the properties say."""

from __future__ import annotations

import functools
import math
from datetime import UTC, datetime, timedelta

from .errors import ConfigurationError
from .java_dates import parse_java_date
from .positions import PositionType, StartingPosition
from .properties import Properties
from .property_table import INITIAL_POSITION, INITIAL_TIMESTAMP, INITIAL_TIMESTAMP_FORMAT

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def initial_position(properties: Properties) -> StartingPosition:
    """The start of a new job. LATEST is still to be pinned to the server's clock (P3).

    Raises: ConfigurationError for an unknown position, and for AT_TIMESTAMP without a time that can be read.
    """
    position = PositionType(properties.value(INITIAL_POSITION))
    if position is not PositionType.AT_TIMESTAMP:
        return StartingPosition(position)
    return StartingPosition.at_timestamp(initial_timestamp_ms(properties))


def initial_timestamp_ms(properties: Properties) -> int:
    """`flink.stream.initpos.timestamp` as epoch ms, cut down to whole ones.

    It is read in the given format first, then as epoch seconds (a double that is not negative), then as ISO-8601; without a zone it is
    UTC. Raises: ConfigurationError with the value and what is valid.
    """
    text, pattern = properties.value(INITIAL_TIMESTAMP), str(properties.value(INITIAL_TIMESTAMP_FORMAT))
    valid = f"text in the format {pattern} ({INITIAL_TIMESTAMP_FORMAT.key}), ISO-8601, or epoch seconds that are not negative"
    if text is None:
        raise ConfigurationError(INITIAL_TIMESTAMP.key, None, valid, reason=f"{INITIAL_POSITION.key} is AT_TIMESTAMP")
    reasons = []
    for read in (functools.partial(_in_format, pattern), _epoch, _iso):
        try:
            return read(text)
        except (ValueError, OverflowError) as error:
            reasons.append(str(error))
    raise ConfigurationError(INITIAL_TIMESTAMP.key, text, valid, reason=reasons[0])


def _in_format(pattern: str, text: str) -> int:
    return _milliseconds(parse_java_date(text, pattern))


def _epoch(text: str) -> int:
    seconds = float(text)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(text)
    return round(seconds * 1_000_000) // 1000


def _iso(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return _milliseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _milliseconds(moment: datetime) -> int:
    if moment < _EPOCH:
        raise ValueError(f"{moment.isoformat()} lies before 1970")
    return (moment - _EPOCH) // timedelta(milliseconds=1)
