"""FanOutPorts: everything that fan-out asks of the service, as one object with one life."""

from __future__ import annotations

from typing import Protocol

from ..kinesis.ports import ListingPort, RegistrationPort, SubscriptionPort


class FanOutPorts(SubscriptionPort, RegistrationPort, ListingPort, Protocol):
    """The three ports of one client; the factory that opened it closes it."""

    async def keys_decide(self, stream: str) -> bool:
        """Whether keys decide the shard of a record: not with AUTO record distribution (S4)."""
        ...

    async def close(self) -> None:
        """Close connections and release the client."""
        ...
