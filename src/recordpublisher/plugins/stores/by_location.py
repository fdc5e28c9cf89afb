"""Finds the store for a location: a path or file:, s3://bucket/prefix, dynamodb://table/job, sqlite: or postgresql:."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties

from .folder import FolderStore
from .read_claim_store import ReadClaimStore, RunCoroutine, run_without_loop

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/", re.IGNORECASE)
"""At least two letters: `C:/` is a drive."""
_BACK_ENDS = {"": "FILE", "file": "FILE", "dynamodb": "DYNAMODB"}
_BACK_ENDS |= dict.fromkeys(("s3", "s3a", "s3n"), "S3")
_BACK_ENDS |= dict.fromkeys(("sqlite", "postgresql", "postgres"), "SQL")
_FORMS = {
    "FILE": "a folder",
    "S3": "s3://bucket/prefix",
    "DYNAMODB": "dynamodb://table/job",
    "SQL": "postgresql://user@host/database or sqlite:////path/file.db",
}
_REFUSED = {
    "hdfs": "there is no client of HDFS here",
    "dbfs": "DBFS does not promise that a rename is atomic, and conditional writes to a folder need that",
}
CLAIM_STORES = ("FILE", "S3", "DYNAMODB")


def back_end_of(location: str) -> str:
    """FILE, S3, DYNAMODB or SQL; for any other scheme the scheme itself. A location without a scheme is a path."""
    if location.startswith("file:"):
        return "FILE"
    found = _SCHEME.match(location)
    scheme = "" if found is None else found[1].partition("+")[0].lower()
    return _BACK_ENDS.get(scheme, scheme)


def conditional_store_of(
    location: str, key: str, properties: Properties, back_ends: tuple[str, ...] = tuple(_FORMS), *, job: str = ""
) -> ConditionalStore:
    """The store at a location, the value of the property `key`. `properties` have region and credentials; only SQL needs `job`, since its
    locations do not name one. Raises: ConfigurationError, also for a back end that is not among `back_ends`."""
    back_end = back_end_of(location)
    if back_end not in back_ends:
        forms = [_FORMS[each] for each in back_ends]
        valid = f"{', '.join(forms[:-1])} or {forms[-1]}"
        raise ConfigurationError(key, location, valid, reason=_REFUSED.get(back_end, ""))
    if back_end == "S3":
        from .s3 import S3Store

        return S3Store(location, key, properties)
    if back_end == "DYNAMODB":
        from .dynamodb import DynamoDbStore

        return DynamoDbStore(location, key, properties)
    if back_end == "SQL":
        from .sql.sql_store import SqlStore

        return SqlStore(location, key, job, properties)
    return FolderStore(_path_of(location, key))


def _path_of(location: str, key: str) -> str:
    """The path of a folder; `file:/a` and `file:///a` are `/a`. Raises: ConfigurationError."""
    if not location.startswith("file:"):
        return location
    parts = urlsplit(location)
    if parts.netloc not in ("", "localhost"):
        reason = f"{parts.netloc!r} would be a host: file: has one slash or three"
        raise ConfigurationError(key, location, "file:///path", reason=reason)
    return unquote(parts.path)


def read_claim_store_of(
    location: str, properties: Properties, run: RunCoroutine, key: str = "metadataLocation"
) -> ReadClaimStore:
    """The claim store at a location, the value of the option `key`; `run` runs its calls. Raises: ConfigurationError."""
    store = conditional_store_of(location, key, properties, CLAIM_STORES)
    if isinstance(store, FolderStore):
        return ReadClaimStore(FolderStore(store.place, in_thread=False), run_without_loop, key)
    return ReadClaimStore(store, run, key)
