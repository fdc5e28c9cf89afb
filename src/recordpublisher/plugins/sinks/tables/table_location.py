"""Reads where a table is from the job's properties: its URI, its folder, and the options of deltalake's own client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from recordpublisher.plugins.stores.back_ends import FOLDER, OBJECT_STORES, S3, back_end_of, forms_of
from recordpublisher.plugins.stores.durable_files import path_of
from recordpublisher.plugins.stores.object_store import refuse_query_and_fragment
from recordpublisher.plugins.stores.obstore_client import ObjectLocation, s3_access
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties

from .table_folder import ObjectFolder, TableFolder

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis.sdk.aws_service import AwsAccess


FORMS = forms_of([FOLDER, *OBJECT_STORES])
_OF_OBSTORE = {
    "AWS_REGION": "region",
    "AWS_ENDPOINT_URL": "endpoint",
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "virtual_hosted_style_request",
}
"""The options of deltalake for the place of objects and for credentials, with obstore's name for each."""
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_CA_FILE = "SSL_CERT_FILE"


class TableLocation:
    """The location of a table: its URI, the options of deltalake's client, and the folder of its files on a disk or in a bucket."""

    def __init__(self, location: str, key: str, properties: Properties, given: Mapping[str, str] | None = None) -> None:
        """Read the location.

        - `key`: the property that has the location.
        - `given`: options of deltalake, which take precedence over those that are found.

        Raises: ConfigurationError if the location is not a folder and not in S3, Google or Azure.
        """
        back_end = back_end_of(location)
        self.is_local = back_end is FOLDER
        if not self.is_local and not back_end.has_objects:
            raise ConfigurationError(key, location, FORMS)
        if not self.is_local:
            refuse_query_and_fragment(key, location, FORMS)
        self.uri = (
            str(Path(path_of(location, key)).absolute()) if self.is_local else back_end.uri_of(location.rstrip("/"))
        )
        self._given = {_option(name): value for name, value in (given or {}).items()}
        self.options = self._given
        self._access: AwsAccess | None = None
        if back_end is S3:
            region, has_keys = self._given.get("AWS_REGION"), _KEYS[0] in self._given
            self._access = s3_access(properties, region, needs_keys=not has_keys)
        self._objects: ObjectLocation | None = None
        if not self.is_local:
            named = {own: self._given[name] for name, own in _OF_OBSTORE.items() if name in self._given}
            self._objects = ObjectLocation(self.uri, key, properties, self._access, **named)

    async def refresh(self) -> None:
        """Put the credentials, region and endpoint that the AWS SDK finds into `options`. Call this before each use.

        Raises: the errors of `AwsAccess.refresh`; ConfigurationError if AWS_SESSION_TOKEN is set, but belongs to other
        credentials than those that were found.
        """
        if self._access is None:
            return
        found = await self._access.refresh()
        endpoint = self._given.get("AWS_ENDPOINT_URL", found.endpoint)
        options = {
            "AWS_REGION": found.region,
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true" if endpoint.startswith("http:") else None,
            **dict(zip(_KEYS, (found.access_key, found.secret_key, found.token), strict=True)),
        }
        if found.ca_bundle is not None:
            os.environ.setdefault(_CA_FILE, found.ca_bundle)  # deltalake has no option for it
        self.options = {name: value for name, value in options.items() if value} | self._given
        if _KEYS[2] not in self.options and os.environ.get(_KEYS[2]):
            reason = "it belongs to other credentials than the job's, and deltalake would use it: unset it"
            raise ConfigurationError(_KEYS[2], reason=reason)

    def folder(self) -> TableFolder:
        """Return the folder of the table. Raises: OSError if its client cannot be opened."""
        return TableFolder(self.uri) if self._objects is None else ObjectFolder(self._objects.client)


def _option(name: str) -> str:
    """Return an option's name as `_OF_OBSTORE` spells it, or unchanged if it is another option.

    deltalake ignores the case of option names, and accepts them without `AWS_`.
    """
    known = f"AWS_{name.upper().removeprefix('AWS_')}"
    known = {"AWS_ENDPOINT": "AWS_ENDPOINT_URL", "AWS_TOKEN": "AWS_SESSION_TOKEN"}.get(known, known)
    return known if known in _OF_OBSTORE or known == "AWS_ALLOW_HTTP" else name
