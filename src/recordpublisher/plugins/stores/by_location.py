"""Finds the store for a location: a path or file:, s3://bucket/prefix, dynamodb://table/job, sqlite: or postgresql:."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties

from .conditional_store import ConditionalStore
from .folder import FolderStore
from .read_claim_store import KEY as CLAIMS_KEY
from .read_claim_store import ReadClaimStore
from .write_once_store import WriteOnceStore

_BACK_ENDS = {"": "FILE", "file": "FILE", "s3": "S3", "dynamodb": "DYNAMODB"}
_BACK_ENDS |= dict.fromkeys(("sqlite", "postgresql", "postgres"), "SQL")
_FORMS = {
    "FILE": "a folder",
    "S3": "s3://bucket/prefix",
    "DYNAMODB": "dynamodb://table/job",
    "SQL": "postgresql://user@host/database or sqlite:////path/file.db",
}


def back_end_of(location: str) -> str:
    """FILE, S3, DYNAMODB or SQL; for any other scheme the scheme itself. A location without a scheme is a path."""
    if location.startswith("file:"):
        return "FILE"
    scheme = location.partition("://")[0].partition("+")[0].lower() if "://" in location else ""
    return _BACK_ENDS.get(scheme, scheme)


def conditional_store_of(
    location: str, key: str, properties: Properties, back_ends: tuple[str, ...] = tuple(_FORMS), *, job: str = ""
) -> ConditionalStore:
    """The store at a location, the value of the property `key`. `properties` have region and credentials; only SQL needs `job`, since its
    locations do not name one. Raises: ConfigurationError, also for a back end that is not among `back_ends`."""
    back_end = back_end_of(location)
    if back_end not in back_ends:
        forms = [_FORMS[each] for each in back_ends]
        raise ConfigurationError(key, location, f"{', '.join(forms[:-1])} or {forms[-1]}")
    if back_end == "S3":
        from .s3 import S3Store

        return S3Store(location, key, properties)
    if back_end == "DYNAMODB":
        from .dynamodb import DynamoDbStore

        return DynamoDbStore(location, key, properties)
    if back_end == "SQL":
        from .sql.sql_store import SqlStore

        return SqlStore(location, key, job, properties)
    return FolderStore(unquote(urlsplit(location).path) if location.startswith("file:") else location)


def read_claim_store_of(location: str, properties: Properties) -> ReadClaimStore:
    """The claim store at a location. Raises: ConfigurationError."""

    def open_store() -> ConditionalStore:
        return conditional_store_of(location, CLAIMS_KEY, properties, ("FILE", "S3", "DYNAMODB"))

    store = open_store()  # a wrong location fails here
    if isinstance(store, FolderStore):
        return ReadClaimStore(lambda: FolderStore(store.place, in_thread=False), needs_loop=False)
    return ReadClaimStore(open_store)


def write_once_store_of(location: str, key: str, properties: Properties) -> WriteOnceStore:
    """The write-once store at a location, the value of the property `key`. Raises: ConfigurationError."""
    return WriteOnceStore(conditional_store_of(location, key, properties, ("FILE", "S3")))
