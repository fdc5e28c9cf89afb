"""The token of a spool, which tells it from one that took its place; and whether there can be a spool at all."""

from __future__ import annotations

import uuid

from recordpublisher.plugins.stores.ports import ObjectStore
from recordpublisher.publishers.errors import ConfigurationError, StateError

from .names import SPOOL


async def spool_id(store: ObjectStore) -> str:
    """The token, drawn by whoever comes first. Raises: StateError."""
    return (await store.put_if_absent(SPOOL, uuid.uuid4().hex.encode())).decode()


async def check_place(store: ObjectStore, location: str) -> None:
    """When a program starts: whether a spool can be kept there. Later trouble with the store may pass, and is tried again.

    Raises: ConfigurationError.
    """
    try:
        await spool_id(store)
    except StateError as error:
        valid = "a folder that can be written, seen by the driver and every executor, or s3://bucket/prefix"
        reason = f"the spool cannot be kept there: {error}"
        raise ConfigurationError("metadataLocation", location, valid, reason=reason) from error
