"""Polling: one shard read with GetRecords. Start at `publisher.py`.

Public: wrap `PollingRecordPublisherFactory` to change what polling reads or where it reads it from.
"""

from .config import PollingConfig
from .factory import PollingRecordPublisherFactory
from .publisher import PollingRecordPublisher, PollingService

__all__ = ["PollingConfig", "PollingRecordPublisher", "PollingRecordPublisherFactory", "PollingService"]
