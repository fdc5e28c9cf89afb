"""Calls to Amazon Kinesis: the only package here that knows the AWS SDK. Start at `client.py` and `ports.py`."""

from .client import KinesisClient
from .run_sync import run_sync

__all__ = ["KinesisClient", "run_sync"]
