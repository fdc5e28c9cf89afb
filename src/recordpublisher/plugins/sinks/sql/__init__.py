"""The SQL sink, which writes rows and positions in one transaction. Start at `sink.py`."""

from recordpublisher.plugins import databases  # noqa: F401 - imported first, because its error names the missing extra

from .sink import SqlSink

__all__ = ["SqlSink"]
