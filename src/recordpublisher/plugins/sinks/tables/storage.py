"""The storage of a table, from the job's properties: for pyarrow, and as options of deltalake's own client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyarrow import fs

from recordpublisher.plugins.stores.by_location import back_end_of
from recordpublisher.plugins.stores.durable_files import path_of
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis.endpoint import region_of
from recordpublisher.publishers.properties.groups.access import (
    ACCESS_KEY_ID,
    CREDENTIALS_PROVIDER,
    SECRET_KEY,
    SESSION_TOKEN,
)
from recordpublisher.publishers.properties.groups.discovery_and_state import STATE_ENDPOINT
from recordpublisher.publishers.properties.properties import Properties

from .folder import TableFolder

if TYPE_CHECKING:
    from recordpublisher.plugins.stores.obstore_client import S3Access

_FOUND_BY_CLIENTS = ("AUTO", "ENV_VAR", "BASIC")
_OPTIONS = {
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "token": "AWS_SESSION_TOKEN",
}
FORMS = "a folder, s3://bucket/prefix, gs://bucket/prefix or abfss://container@account.dfs.core.windows.net/prefix"


class TableStorage:
    """A location: its URI, what deltalake's client needs for it, and its folder."""

    def __init__(self, location: str, key: str, properties: Properties) -> None:
        """`key` is the property that has the location. Raises: ConfigurationError."""
        back_end = back_end_of(location)
        if back_end not in ("FILE", "S3", "GOOGLE", "AZURE") or "?" in location:
            raise ConfigurationError(key, location, FORMS)
        self.is_local = back_end == "FILE"
        self.uri = str(Path(path_of(location, key)).absolute()) if self.is_local else location.rstrip("/")
        self.options: dict[str, str] = {}
        self._access: S3Access | None = None
        if back_end == "S3":
            self.uri = f"s3://{urlsplit(self.uri).netloc}{urlsplit(self.uri).path}"
            self.options = _options_of_s3(properties)
            if properties.value(CREDENTIALS_PROVIDER) not in _FOUND_BY_CLIENTS:
                from recordpublisher.plugins.stores.obstore_client import S3Access  # the SDK

                self._access = S3Access(properties)

    async def refresh(self) -> None:
        """Put credentials that only the SDK finds, as those of a role, into `options`; to be called before each use. Raises: as
        `S3Access.refresh`."""
        if self._access is not None:
            found = await self._access.refresh()
            others = {name: value for name, value in self.options.items() if name not in _OPTIONS.values()}
            self.options = others | {_OPTIONS[name]: value for name, value in found.items()}

    def folder(self) -> TableFolder:
        """Raises: OSError."""
        if self.is_local:
            return TableFolder(fs.LocalFileSystem(), self.uri)
        if self.uri.startswith("s3://"):
            given = self.options
            files = fs.S3FileSystem(
                region=given["AWS_REGION"],
                endpoint_override=given.get("AWS_ENDPOINT_URL"),
                access_key=given.get("AWS_ACCESS_KEY_ID"),
                secret_key=given.get("AWS_SECRET_ACCESS_KEY"),
                session_token=given.get("AWS_SESSION_TOKEN"),
                allow_delayed_open=True,  # a small file is one request
            )
            return TableFolder(files, self.uri.removeprefix("s3://"))
        return TableFolder(*fs.FileSystem.from_uri(self.uri))


def _options_of_s3(properties: Properties) -> dict[str, str]:
    """Credentials only where properties have them: both clients find the others as the AWS command line does."""
    endpoint = properties.value(STATE_ENDPOINT)
    given = {
        "AWS_REGION": region_of(properties),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true" if endpoint and endpoint.startswith("http:") else None,
        "AWS_ACCESS_KEY_ID": properties.value(ACCESS_KEY_ID),
        "AWS_SECRET_ACCESS_KEY": properties.value(SECRET_KEY),
        "AWS_SESSION_TOKEN": properties.value(SESSION_TOKEN),
    }
    return {name: value for name, value in given.items() if value is not None}
