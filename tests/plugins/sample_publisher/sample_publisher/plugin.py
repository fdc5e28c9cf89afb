"""The hooks of this package."""

from plugins.sample_publisher.sample_publisher.lines import LinesFactory

from recordpublisher import hookimpl


@hookimpl
def recordpublisher_register_publishers(registry):
    registry.add("LINES", LinesFactory)
