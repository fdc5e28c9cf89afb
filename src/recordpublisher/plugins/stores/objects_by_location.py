"""Which object store a location means: a folder or s3://bucket/prefix."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties

from .file.object_store import FolderObjects
from .objects import ObjectStore


def object_store_of(location: str, key: str, properties: Properties) -> ObjectStore:
    """The store behind a location that stood at the property `key`. Raises: ConfigurationError."""
    parts = urlsplit(location)
    if parts.scheme == "s3":
        from .s3.object_store import S3Objects

        return S3Objects(location, key, properties)
    if parts.scheme == "file":
        return FolderObjects(unquote(parts.path))
    if "://" in location:
        raise ConfigurationError(key, location, "a folder or s3://bucket/prefix")
    return FolderObjects(location)
