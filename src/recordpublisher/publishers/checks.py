"""Checks: what `recordpublisher doctor` asks a publisher or a sink before a job starts, without changing anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from .errors import RecordPublisherError

Check = Callable[[], Awaitable[str | None]]
"""Says in a few words what was found; None: it cannot be asked without a change. Raises: an error that says what to do."""
Checks = Mapping[str, Check]
"""Checks by name, made in this order, one after the other. Where a check calls AWS, its name is the IAM action."""

MAX_CLOCK_OFFSET_MS = 60_000
"""AWS refuses calls from five minutes on; a time of start would be wrong long before."""


def check_clock(now_ms: int, service_ms: int) -> str:
    """Compare this machine's clock with that of a service, which tells whole seconds. Raises: RecordPublisherError."""
    offset_ms = now_ms - service_ms
    if abs(offset_ms) > MAX_CLOCK_OFFSET_MS:
        direction = "ahead of" if offset_ms > 0 else "behind"
        raise RecordPublisherError(
            f"this machine is {abs(offset_ms) / 1000:.0f} s {direction} the service: set its clock"
        )
    return "as that of the service"
