"""Java's SimpleDateFormat patterns, the usual letters, over text that people write in properties files."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo

_FIELDS = {
    "y": r"(?P<year>\d{4})", "M": r"(?P<month>\d{1,2})", "d": r"(?P<day>\d{1,2})", "H": r"(?P<hour>\d{1,2})",
    "h": r"(?P<hour12>\d{1,2})", "m": r"(?P<minute>\d{1,2})", "s": r"(?P<second>\d{1,2})", "S": r"(?P<milli>\d{1,3})",
    "a": r"(?P<half>[AaPp][Mm])", "E": r"[A-Za-z]+", "X": r"(?P<zone>Z|[+-]\d{2}(?::?\d{2})?)",
    "Z": r"(?P<zone>[+-]\d{4})", "z": r"(?P<zone>(?:UTC|GMT|Z)?(?:[+-]\d{2}:?\d{2})?)",
}  # fmt: skip
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TOKEN = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>(?P<letter>[A-Za-z])(?P=letter)*)|(?P<other>.)", re.DOTALL)


def parse_java_date(text: str, pattern: str) -> datetime:
    """The aware time that `text` means in `pattern`; without a zone it is UTC, so that every machine reads the same.

    Raises: ValueError when the text does not fit, or the pattern has a letter that is not among `y M d H h m s S a E X Z z`.
    """
    try:
        found = re.fullmatch(_expression(pattern), text)
    except re.error as error:  # a field that stands there twice
        raise ValueError(f"the format {pattern!r} cannot be used: {error}") from error
    if found is None:
        raise ValueError(f"{text!r} does not fit {pattern!r}")
    part = found.groupdict()
    return datetime(
        _year(part.get("year")),
        _month(part.get("month")),
        int(part.get("day") or 1),
        _hour(part),
        int(part.get("minute") or 0),
        int(part.get("second") or 0),
        int(part.get("milli") or 0) * 1000,
    ).replace(tzinfo=_zone(part.get("zone") or "Z"))


def _expression(pattern: str) -> str:
    return "".join(_piece(token, pattern) for token in _TOKEN.finditer(pattern))


def _piece(token: re.Match[str], pattern: str) -> str:
    if token["quoted"] is not None:
        return re.escape(token["quoted"].replace("''", "'") or "'")
    if token["other"] is not None:
        return re.escape(token["other"])
    letters = token["letters"]
    if letters[0] not in _FIELDS:
        raise ValueError(f"the letter {letters[0]!r} of {pattern!r} is not supported")
    if letters == "yy":
        return r"(?P<year>\d{2})"
    return r"(?P<month>[A-Za-z]+)" if letters[0] == "M" and len(letters) > 2 else _FIELDS[letters[0]]


def _year(text: str | None) -> int:
    year = int(text or 1970)
    return year if year > 99 else 2000 + year


def _month(text: str | None) -> int:
    if text is None or text.isdecimal():
        return int(text or 1)
    return _MONTHS.index(text[:3].lower()) + 1


def _hour(part: dict[str, str | None]) -> int:
    if part.get("hour12") is None:
        return int(part.get("hour") or 0)
    return int(part["hour12"] or 0) % 12 + (12 if (part.get("half") or "am").lower() == "pm" else 0)


def _zone(text: str) -> tzinfo | None:
    offset = re.sub("^(UTC|GMT|Z)", "", text)
    return datetime.strptime(offset if len(offset) > 3 else f"{offset}00", "%z").tzinfo if offset else UTC
