"""The embedded Kinesis endpoint: GetRecords, SubscribeToShard, reshards and faults on loopback. Its data is in memory, or in a folder.

Start with `serve_in_thread` in synchronous code, and with `LocalKinesis` in asyncio.

A request goes through these files: `server.py`, `http_requests.py`, `dispatcher.py`, the inputs in `requests.py`, and a function in
`operations/`. The functions read and change the data model: `account.py`, `stream.py`, `shard.py`, `subscriptions.py` and
`record_queues.py`. For a client in the same process, `in_memory_transport.py` replaces HTTP.
"""

from typing import TYPE_CHECKING, Any

from recordpublisher.publishers.clock import SystemClock

from .account import Account, Delays, Quotas
from .clock import Clock, ManualClock
from .faults import FaultKind, FaultRule, Faults, StreamFault
from .server import LocalKinesis, LocalKinesisThread, LocalStream, serve_in_thread

if TYPE_CHECKING:
    from .in_memory_transport import MemoryTransport, in_memory

__all__ = [
    "LocalKinesis",
    "LocalKinesisThread",
    "LocalStream",
    "serve_in_thread",
    "Clock",
    "ManualClock",
    "SystemClock",
    "Quotas",
    "Delays",
    "Faults",
    "FaultKind",
    "FaultRule",
    "Account",
    "MemoryTransport",
    "in_memory",
    "StreamFault",
]


def __getattr__(name: str) -> Any:
    if name not in ("MemoryTransport", "in_memory"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import in_memory_transport  # Imported here because it loads the client, which a server does not need.

    return getattr(in_memory_transport, name)
