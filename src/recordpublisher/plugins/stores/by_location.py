"""Finds the store for a location: a path, or a file:, s3:, dynamodb:, gs:, abfss:, sqlite: or postgresql: URI."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import TypeVar

from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.job_properties import STATE_URI
from recordpublisher.publishers.properties.properties import Properties

from ..host.manager import load_registry
from ..host.registry import Registry
from .durable_files import path_of

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE)
"""A scheme has at least two letters, because `C:/` is a drive."""
_BACK_ENDS = {"": "FILE", "file": "FILE", "dynamodb": "DYNAMODB"}
_FORMS = {
    "FILE": "a folder",
    "S3": "s3://bucket/prefix",
    "DYNAMODB": "dynamodb://table/job",
    "GOOGLE": "gs://bucket/prefix",
    "AZURE": "abfss://container@account.dfs.core.windows.net/prefix",
    "SQL": "postgresql://user@host/database or sqlite:////path/file.db",
}
_REFUSED = {
    "hdfs": "this library has no client of HDFS",
    "dbfs": "DBFS does not promise that a rename is atomic, and conditional writes to a folder need that",
}
OBJECT_STORES = ("S3", "GOOGLE", "AZURE")
"""The back ends whose locations have objects."""
NOT_FOR_CLAIMS = ("SQL",)
"""The back ends that cannot store claims, because every task of a query would open a session."""


def conditional_store_of(
    location: str,
    key: str,
    properties: Properties,
    registry: Registry | None = None,
    *,
    refused: Collection[str] = (),
) -> ConditionalStore:
    """Return the store at a location, which is the value of the property `key`.

    It is a built-in store, or a plugin's store that is selected by the location's scheme. `properties` have region, credentials and the
    job's name.

    Raises: ConfigurationError if no store has this scheme, its back end is in `refused`, or the location is not valid.
    """
    stores, name = (registry or load_registry()).stores, back_end_of(location)
    names = [known for known in stores.names() if known not in refused]
    if name.lower() not in map(str.lower, names):
        forms = [form for known, form in _FORMS.items() if known in names]
        forms += [f"{plugin.lower()}:..." for plugin in names if plugin not in _FORMS]
        reason = _REFUSED.get(name) or stores.why_absent()
        raise ConfigurationError(key, location, f"{', '.join(forms[:-1])} or {forms[-1]}", reason=reason)
    return stores.make(name, key, location, key, properties)


def back_end_of(location: str) -> str:
    """Return FILE, S3, DYNAMODB, GOOGLE, AZURE or SQL; for any other scheme, return the scheme itself.

    A location without a scheme is a path.
    """
    if location.startswith("file:"):
        return "FILE"
    found = _SCHEME.match(location)
    scheme = "" if found is None else found[1].partition("+")[0].lower()
    return _BACK_ENDS.get(scheme, scheme)


_BACK_ENDS |= dict.fromkeys(("s3", "s3a", "s3n"), "S3")
_BACK_ENDS |= {"gs": "GOOGLE", "abfs": "AZURE", "abfss": "AZURE"}
_BACK_ENDS |= dict.fromkeys(("sqlite", "postgresql", "postgres"), "SQL")


def missing_folder(location: str) -> Path | None:
    """Return the folder at a location if it does not exist, and None for any other location."""
    if back_end_of(location) != "FILE":
        return None
    folder = Path(path_of(location, STATE_URI.key))
    return None if folder.is_dir() else folder


T = TypeVar("T")
