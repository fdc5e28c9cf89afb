"""Reads one shard by enhanced fan-out, with SubscribeToShard.

Start at `publisher.py`. `registration.py` registers the consumers, and `config.py` has the settings.

`FanOutRecordPublisherFactory` is public. Wrap it to change what enhanced fan-out reads, or from where.
"""

from .config import FanOutConfig
from .publisher import FanOutRecordPublisher, FanOutRecordPublisherFactory, FanOutService, register_eagerly

__all__ = ["FanOutConfig", "FanOutRecordPublisher", "FanOutRecordPublisherFactory", "FanOutService", "register_eagerly"]
