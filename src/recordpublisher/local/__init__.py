"""The embedded Kinesis endpoint: GetRecords, SubscribeToShard, reshards and faults on loopback, data in memory only.

Start with `serve_in_thread` in synchronous code, with `LocalKinesis` in asyncio.
"""

from .clock import Clock, ManualClock, SystemClock
from .faults.injector import Faults, StreamFault
from .faults.kinds import FaultKind
from .faults.rules import FaultRule
from .in_memory_transport import MemoryTransport
from .quotas import Quotas
from .server import LocalKinesis
from .server_thread import LocalKinesisThread, LocalStream, serve_in_thread
from .streams.account import Account, Delays

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
    "StreamFault",
]
