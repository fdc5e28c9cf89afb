"""`recordpublisher plugins`: the installed plugins and the names that they register."""

from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.host.registry import NameTable, PluginStatus

from ..output import echo


def plugins() -> None:
    """List the plugins and the names they register, and why a plugin failed or is blocked.

    A plugin is not loaded if the environment variable RECORDPUBLISHER_BLOCK_PLUGINS has its name or that of its package. Separate several
    names by commas.

    Example: recordpublisher plugins
    """
    registry = load_registry()
    echo("plugins")
    for status in registry.plugins:
        echo(f"  {_status_line(status)}")
    for message in registry.not_blocked:
        echo(f"  {message}")
    for message in registry.import_classes():
        echo(f"  {message}")
    for kind, table in registry.tables().items():
        echo(f"{kind.replace('_', ' ')}: {_names(table)}")


def _status_line(status: PluginStatus) -> str:
    reason = f" ({' '.join(status.reason.split())})" if status.reason else ""
    return f"{status.owner.plugin}, of {status.owner}: {status.state}{reason}"


def _names(table: NameTable[object]) -> str:
    return ", ".join(f"{claim.name} ({claim.owner.distribution})" for claim in table.claims()) or "none"
