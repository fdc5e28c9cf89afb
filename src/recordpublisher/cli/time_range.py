"""Where `tail` starts and ends: `--from`, `--since` and `--until` as properties and epoch ms."""

from __future__ import annotations

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import initial_timestamp_ms
from recordpublisher.publishers.properties.groups.publisher import INITIAL_POSITION, INITIAL_TIMESTAMP
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.units import parse_with_unit

_TIME = "2026-11-22T06:00:00Z (UTC without a zone), or epoch seconds"
_MAX_TIME_DIGITS = 20


def given_sequence_number(start: str | None) -> str | None:
    """`--from` if it is a sequence number: those of Kinesis have 56 digits, epoch seconds have ten."""
    return start if start is not None and start.isdecimal() and len(start) > _MAX_TIME_DIGITS else None


def start_properties(start: str | None, since: str | None, now_ms: int) -> dict[str, str]:
    """The properties of `--from` or `--since`; none without both, and for a sequence number. Raises: ConfigurationError."""
    if since is not None:
        if start is not None:
            raise ConfigurationError("--since", since, "without --from", reason="both say where to start")
        return _at(now_ms - _duration_ms(since))
    if start is None or given_sequence_number(start) is not None:
        return {}
    if start.upper() in ("TRIM_HORIZON", "LATEST"):
        return {INITIAL_POSITION.key: start.upper()}
    return _at(time_ms("--from", start, f"TRIM_HORIZON, LATEST, a sequence number, or a time: {_TIME}"))


def time_ms(option: str, given: str, valid: str = _TIME) -> int:
    """A point in time, epoch ms. Raises: ConfigurationError that names the option."""
    try:
        return initial_timestamp_ms(Properties({INITIAL_TIMESTAMP.key: given}))
    except ConfigurationError as error:
        raise ConfigurationError(option, given, valid) from error


def _duration_ms(given: str) -> int:
    found = parse_with_unit(given.strip(), "ms")
    if found is None:
        raise ConfigurationError("--since", given, "a duration such as 10m, 2h or 1d")
    return found


def _at(ms: int) -> dict[str, str]:
    return {INITIAL_POSITION.key: "AT_TIMESTAMP", INITIAL_TIMESTAMP.key: f"{max(ms, 0) / 1000:.3f}"}
