"""Lets pyiceberg read and write the files of a table with the object storage clients that all sinks use."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.io import FileIO, InputFile, OutputFile

from recordpublisher.plugins.stores.back_ends import AZURE, GOOGLE, S3, BackEnd, back_end_of
from recordpublisher.plugins.stores.durable_files import DurableFile
from recordpublisher.plugins.stores.obstore_client import open_object_store, s3_options
from recordpublisher.publishers.errors import (
    StateError,
)

from .table_folder import ObjectFolder, ObjectReader, ObjectWriter, TableFolder, as_os_errors

ACCESS_PROPERTY = "recordpublisher.access"
"""A property that is passed to pyiceberg. Its value is a function `(region, needs_keys)` that returns the job's `AwsAccess` to S3."""
_S3: dict[str, tuple[str, ...]] = {
    "region": ("s3.region", "client.region"),
    "endpoint": ("s3.endpoint",),
    "access_key_id": ("s3.access-key-id", "client.access-key-id"),
    "secret_access_key": ("s3.secret-access-key", "client.secret-access-key"),
    "session_token": ("s3.session-token", "client.session-token"),
    "server_side_encryption": ("s3.server-side-encryption",),
    "sse_kms_key_id": ("s3.sse-kms-key-id",),
    "skip_signature": ("s3.anonymous",),
}
_GOOGLE: dict[str, tuple[str, ...]] = {"base_url": ("gcs.service.host",)}
_AZURE: dict[str, tuple[str, ...]] = {
    "account_name": ("adls.account-name",),
    "account_key": ("adls.account-key",),
    "sas_key": ("adls.sas-token",),
    "tenant_id": ("adls.tenant-id",),
    "client_id": ("adls.client-id",),
    "client_secret": ("adls.client-secret",),
    "token": ("adls.token",),
}
_NAMES: dict[BackEnd, dict[str, tuple[str, ...]]] = {S3: _S3, GOOGLE: _GOOGLE, AZURE: _AZURE}
"""For each back end: obstore's name of each setting, with pyiceberg's names for it. The first of these that is set is used."""
UNSUPPORTED_PROPERTIES = {
    "s3.role-arn", "s3.signer", "s3.profile-name", "s3.proxy-uri", "s3.force-virtual-addressing", "client.role-arn",
    "client.profile-name", "glue.profile-name", "dynamodb.profile-name", "adls.connection-string",
}  # fmt: skip
"""Properties of pyiceberg, about the place of files or credentials, that this FileIO does not support."""


class ObjectFileIO(FileIO):  # type: ignore[misc] # of Any
    """Reads and writes files for pyiceberg, with one client for each bucket.

    A local file is flushed to the disk when it is closed, so that after a power cut no catalogue names a file that is lost.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        super().__init__(properties)
        self._clients: dict[str, Any] = {}

    def folder(self, location: str) -> TableFolder:
        """Return the folder of the table at a location.

        Raises: StateError if the scheme is not supported or the bucket cannot be opened; for a bucket of S3 also the errors of
        `AwsAccess.refresh`.
        """
        client, path = self.place(location.rstrip("/"))
        return TableFolder(path) if client is None else ObjectFolder(client, f"{path}/" if path else "")

    def new_input(self, location: str) -> InputFile:
        """Return a file to read."""
        return _File(location, *self.place(location))

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write."""
        return _File(location, *self.place(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file. Raises: OSError if that fails."""
        client, path = self.place(location if isinstance(location, str) else location.location)
        if client is None:
            Path(path).unlink()
        else:
            with as_os_errors():
                client.delete(path)

    def place(self, location: str) -> tuple[Any, str]:
        """Return the client of a location (None for a local one), and the path.

        Raises: StateError if the scheme is not supported or the bucket cannot be opened; for a bucket of S3 also the errors of
        `AwsAccess.refresh`.
        """
        scheme, separator, rest = location.partition("://")
        if not separator or scheme == "file":
            return None, rest if separator else os.path.abspath(location.removeprefix("file:"))
        back_end = back_end_of(location)
        if back_end not in _NAMES:
            raise StateError(f"{location} is neither local nor in S3, Google or Azure")
        host, _, path = rest.partition("/")
        root = back_end.uri_of(f"{scheme}://{host}")
        if root not in self._clients:
            self._clients[root] = self._opened(root, _NAMES[back_end])
        return self._clients[root], path

    def _opened(self, root: str, names: Mapping[str, tuple[str, ...]]) -> Any:
        found = {own: next(filter(None, map(self.properties.get, theirs)), None) for own, theirs in names.items()}
        given: dict[str, Any] = {own: value for own, value in found.items() if value is not None}
        if names is _S3:
            needs_keys = not given.keys() & {"access_key_id", "skip_signature"}
            given = s3_options(self.properties[ACCESS_PROPERTY](given.get("region"), needs_keys), given)
        elif names is _GOOGLE and (token := self.properties.get("gcs.oauth2.token")):
            until = self.properties.get("gcs.oauth2.token-expires-at")
            expires_at = datetime.fromtimestamp(int(until) / 1000, UTC) if until else None
            given["credential_provider"] = lambda: {"token": token, "expires_at": expires_at}
        elif names is _AZURE and "account_name" not in given and "@" in root:
            given["account_name"] = urlsplit(root).hostname.partition(".")[0]  # type: ignore[union-attr]
        try:
            return open_object_store(root, **given)
        except ImportError:
            raise
        except Exception as error:
            raise StateError(f"{root} cannot be opened: {error}") from error


def is_worth_logging(line: logging.LogRecord) -> bool:
    """Return whether a line should be logged: False for pyiceberg's warning that a column of a file has no statistics.

    Arrow omits the statistics of long values and of columns of bytes, so the warning would be logged for each file of a job.
    """
    return "PyArrow statistics missing" not in str(line.msg)


logging.getLogger("pyiceberg.io.pyarrow").addFilter(is_worth_logging)


class _File(InputFile, OutputFile):  # type: ignore[misc]
    """A file that pyiceberg reads or writes."""

    def __init__(self, location: str, client: Any, path: str) -> None:
        super().__init__(location)
        self._client, self._path = client, path

    def _folder(self) -> TableFolder:
        return TableFolder("/") if self._client is None else ObjectFolder(self._client)

    def __len__(self) -> int:
        size = self._folder().size(self._path)
        if size is None:
            raise FileNotFoundError(self.location)
        return size

    def exists(self) -> bool:
        return self._folder().size(self._path) is not None

    def open(self, seekable: bool = True) -> Any:
        if self._client is None:
            return open(self._path, "rb")
        return io.BufferedReader(ObjectReader(self._client, self._path))

    def create(self, overwrite: bool = False) -> Any:
        if self._client is None:
            return DurableFile(Path(self._path), is_new=not overwrite)
        if not overwrite and self.exists():
            raise FileExistsError(self.location)
        return ObjectWriter(self._client, self._path)

    def to_input_file(self) -> InputFile:
        return self
