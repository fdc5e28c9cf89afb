"""How an extra of this package is installed: from the package index, or from the checkout or file that it was installed from."""

import json
from urllib.parse import unquote, urlsplit

PACKAGE = "recordpublisher"


def install_command(extra: str) -> str:
    """The command, for a sentence that says which extra is missing."""
    return install_command_of(_direct_url(), extra)


def install_command_of(direct_url: str | None, extra: str) -> str:
    """The command for an installation with this `direct_url.json`; None or another host than this one: from the package index."""
    source = json.loads(direct_url) if direct_url else {}
    url = urlsplit(source.get("url", ""))
    if url.scheme != "file":
        return f"pip install '{PACKAGE}[{extra}]'"
    editable = "-e " if source.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{unquote(url.path)}[{extra}]'"


def _direct_url() -> str | None:
    """What pip noted of an installation that is not from the index. A build may have left metadata without it beside the source."""
    from importlib.metadata import distributions

    noted = (found.read_text("direct_url.json") for found in distributions(name=PACKAGE))
    return next(filter(None, noted), None)
