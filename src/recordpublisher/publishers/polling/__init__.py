"""Reads one shard by polling, with GetRecords. Start at `publisher.py`.

Public: wrap `PollingRecordPublisherFactory` to change what polling reads or where it reads it from. These classes
import the AWS SDK; `shard_probe.py` and `read_rate.py` can be imported without it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import PollingConfig
    from .factory import PollingRecordPublisherFactory
    from .publisher import PollingRecordPublisher, PollingService

_LAZY = {
    "PollingConfig": ".config",
    "PollingRecordPublisher": ".publisher",
    "PollingRecordPublisherFactory": ".factory",
    "PollingService": ".publisher",
}

__all__ = ["PollingConfig", "PollingRecordPublisher", "PollingRecordPublisherFactory", "PollingService"]


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_LAZY[name], __name__), name)
