"""Enhanced fan-out with SubscribeToShard."""

from .config import check
from .eager_registration import register_eagerly
from .factory import FanOutRecordPublisherFactory
from .publisher import FanOutRecordPublisher

__all__ = ["FanOutRecordPublisherFactory", "FanOutRecordPublisher", "check", "register_eagerly"]
