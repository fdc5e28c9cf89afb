"""Polling with GetRecords."""

from .config import PollingConfig
from .factory import PollingRecordPublisherFactory
from .publisher import PollingRecordPublisher

PollingFactory = PollingRecordPublisherFactory

__all__ = ["PollingConfig", "PollingFactory", "PollingRecordPublisher", "PollingRecordPublisherFactory"]
