"""Transport: what carries calls to the service and answers back; `Connections` is the one over the AWS SDK."""

from __future__ import annotations

from typing import Any, Protocol


class Transport(Protocol):
    """Owned by the `KinesisClient` that uses it. Both kinds of call raise the errors of `errors.py`, translated, and do not retry.

    An answer is a dict as the SDK parses it, except that the body of GetRecords is a `ReadBody` under `parsing.READ` and the answer of
    SubscribeToShard an open response under `parsing.RAW_EVENTS`, with `content.readany()`, `close()` and `connection`, None where
    nothing is read ahead.
    """

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        """One call with a deadline."""
        ...

    async def subscribe(self, api: str, **parameters: Any) -> dict[str, Any]:
        """One call whose answer stays open; the caller sets the deadline."""
        ...

    async def close(self) -> None:
        """Close every connection; open subscriptions end."""
        ...
