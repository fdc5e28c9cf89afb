"""The embedded Kinesis endpoint: GetRecords, SubscribeToShard, reshards and faults on loopback, nothing on disk."""

from .account import Delays
from .clock import Clock, ManualClock, SystemClock
from .faults import Faults, StreamFault
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
    "StreamFault",
]
