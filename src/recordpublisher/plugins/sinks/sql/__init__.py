"""The sql sink: rows and positions in one transaction."""

from recordpublisher.plugins.stores import sql as database  # noqa: F401 - first: it says which extra is missing

from .sink import SqlSink

__all__ = ["SqlSink"]
