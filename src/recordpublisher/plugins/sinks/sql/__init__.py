"""The SQL sink: writes rows and positions in one transaction. Start at `sink.py`."""

from recordpublisher.plugins import databases  # noqa: F401 - first, since it names the missing extra

from .sink import SqlSink

__all__ = ["SqlSink"]
