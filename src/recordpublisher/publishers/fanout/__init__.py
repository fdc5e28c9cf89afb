"""Reads one shard by enhanced fan-out, with SubscribeToShard. Start at `publisher.py`.

Public: wrap `FanOutRecordPublisherFactory` to change what fan-out reads or where it reads it from.
"""

from .config import FanOutConfig
from .factory import FanOutRecordPublisherFactory, register_eagerly
from .publisher import FanOutRecordPublisher, FanOutService

__all__ = ["FanOutConfig", "FanOutRecordPublisher", "FanOutRecordPublisherFactory", "FanOutService", "register_eagerly"]
