"""Which claim store a location means: a folder, s3://bucket/prefix or dynamodb://table/job."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties

from .file.claim_store import FileClaimStore
from .file.object_store import FolderObjects
from .ports import ClaimStore, ObjectStore


def claim_store_of(location: str, properties: Properties) -> ClaimStore:
    """The store behind a location; `properties` have region and credentials. Raises: ConfigurationError."""
    parts = urlsplit(location)
    if parts.scheme == "s3":
        from .s3.claim_store import S3ClaimStore

        return S3ClaimStore(location, properties)
    if parts.scheme == "dynamodb":
        from .dynamodb.claim_store import DynamoDbClaimStore

        return DynamoDbClaimStore(location, properties)
    if parts.scheme == "file":
        return FileClaimStore(unquote(parts.path))
    if "://" in location:
        raise ConfigurationError("metadataLocation", location, "a folder, s3://bucket/prefix or dynamodb://table/job")
    return FileClaimStore(location)


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
