"""The hooks of this package."""

from recordpublisher import hookimpl

from .factory import LinesFactory


@hookimpl
def recordpublisher_register_publishers(registry):
    registry.add("LINES", LinesFactory)
