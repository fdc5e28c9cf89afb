"""QUEUE: the records of a queue of Kinesis, each acknowledged when it is safe. Start at `publisher.py`."""

from .factory import QueueFactory

__all__ = ["QueueFactory"]
