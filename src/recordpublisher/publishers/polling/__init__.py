"""Reads one shard by polling, with GetRecords. Start at `publisher.py`.

Public: `PollingRecordPublisherFactory`, for plugins that change what polling reads, or from where. It loads the AWS SDK only when it makes
a client.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .publisher import PollingConfig, PollingRecordPublisher, PollingRecordPublisherFactory, PollingService

_LAZY = {
    "PollingConfig": ".publisher",
    "PollingRecordPublisher": ".publisher",
    "PollingRecordPublisherFactory": ".publisher",
    "PollingService": ".publisher",
}

__all__ = ["PollingConfig", "PollingRecordPublisher", "PollingRecordPublisherFactory", "PollingService"]


if not TYPE_CHECKING:  # Hidden from type checkers, which would accept any name because of `__getattr__`.

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_LAZY[name], __name__), name)
