"""Tells how to install an extra of this package: from the package index, or from the folder or file that it was installed from."""

import json
from urllib.parse import unquote, urlsplit

PACKAGE = "recordpublisher"


def install_command(extra: str) -> str:
    """Return the command that installs an extra, for an error message that says which extra is missing."""
    return install_command_from_url(_direct_url(), extra)


def install_command_from_url(direct_url: str | None, extra: str) -> str:
    """Return the command that installs an extra, for a package that was installed with this `direct_url.json`.

    The command installs from the package index if `direct_url` is None, or if its URL is not a local file.

    - `direct_url`: the content of the file that pip writes for a package that it did not install from the package index.
    """
    source = json.loads(direct_url) if direct_url else {}
    url = urlsplit(source.get("url", ""))
    if url.scheme != "file":
        return f"pip install '{PACKAGE}[{extra}]'"
    editable = "-e " if source.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{unquote(url.path)}[{extra}]'"


def _direct_url() -> str | None:
    """Return the content of the `direct_url.json` of this package, or None if pip installed the package from the package index.

    All copies of the package's metadata are searched. A copy that a build has left next to the source has no such file.
    """
    from importlib.metadata import distributions

    noted = (found.read_text("direct_url.json") for found in distributions(name=PACKAGE))
    return next(filter(None, noted), None)
