"""Reads one shard by enhanced fan-out, with SubscribeToShard.

Start at `publisher.py`. `registration.py` has the stream consumers and the settings.

Public: wrap `FanOutRecordPublisherFactory` to change what fan-out reads or where it reads it from.
"""

from .config import FanOutConfig
from .publisher import FanOutRecordPublisher, FanOutRecordPublisherFactory, FanOutService, register_eagerly

__all__ = ["FanOutConfig", "FanOutRecordPublisher", "FanOutRecordPublisherFactory", "FanOutService", "register_eagerly"]
