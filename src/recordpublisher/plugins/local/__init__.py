"""The embedded Kinesis endpoint: GetRecords, SubscribeToShard, reshards and faults on loopback, nothing on disk."""

from .account import Delays
from .clock import Clock, ManualClock, SystemClock
from .fault_kinds import FaultKind
from .fault_rules import FaultRule
from .faults import Faults, StreamFault
from .memory import MemoryTransport
from .quotas import Quotas
from .server import LocalKinesis
from .thread import LocalKinesisThread, serve_in_thread

__all__ = [
    "LocalKinesis",
    "LocalKinesisThread",
    "serve_in_thread",
    "Clock",
    "ManualClock",
    "SystemClock",
    "Quotas",
    "Delays",
    "Faults",
    "FaultKind",
    "FaultRule",
    "MemoryTransport",
    "StreamFault",
]
