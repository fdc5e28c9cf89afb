"""The AWS SDK: the only room that knows its shapes."""

from .client import KinesisClient
from .run_sync import run_sync

__all__ = ["KinesisClient", "run_sync"]
