"""Transport: what carries calls to the service and answers back; `Connections` is the one over the AWS SDK."""

from __future__ import annotations

from typing import Any, Protocol


class Transport(Protocol):
    """Owned by the `KinesisClient` that uses it. Both kinds of call raise the errors of `errors.py`, translated, and do not retry.

    An answer is a dict as the SDK parses it, with three exceptions: the body of GetRecords is a `ReadBody` under `parsing.READ`, that of
    PutRecords a `PutAnswer` under `parsing.PUT`, and the answer of SubscribeToShard an open response under `parsing.RAW_EVENTS`, with
    `content.readany()`, `close()` and `connection`, None where nothing is read ahead.
    """

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        """One call with a deadline."""
        ...

    async def call_with_body(self, api: str, body: bytes, **parameters: Any) -> dict[str, Any]:
        """A call whose body the client has encoded; `parameters` say of which stream, as in `call`."""
        ...

    async def subscribe(self, api: str, **parameters: Any) -> dict[str, Any]:
        """One call whose answer stays open; the caller sets the deadline."""
        ...

    async def close(self) -> None:
        """Close every connection; open subscriptions end."""
        ...
