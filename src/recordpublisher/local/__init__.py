"""The embedded Kinesis endpoint: GetRecords, SubscribeToShard, reshards and faults on loopback. It keeps data in memory, or in a folder.

Start with `serve_in_thread` in synchronous code, and with `LocalKinesis` in asyncio.
"""

from typing import TYPE_CHECKING, Any

from recordpublisher.publishers.clock import SystemClock

from .clock import Clock, ManualClock
from .faults.injector import Faults, StreamFault
from .faults.kinds import FaultKind, FaultRule
from .quotas import Quotas
from .server import LocalKinesis
from .server_thread import LocalKinesisThread, LocalStream, serve_in_thread
from .streams.account import Account, Delays

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
