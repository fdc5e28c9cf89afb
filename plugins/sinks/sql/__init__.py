"""The sql sink: rows and positions in one transaction."""

from .sink import SqlSink

__all__ = ["SqlSink"]
