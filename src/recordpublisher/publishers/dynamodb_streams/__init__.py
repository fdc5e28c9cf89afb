"""Reads DynamoDB Streams, the changes of a table, by polling. Start at `service.py`."""

from .service import DynamoDbStreamsFactory

__all__ = ["DynamoDbStreamsFactory"]
