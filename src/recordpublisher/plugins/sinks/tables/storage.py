"""The storage of a table, from the job's properties: for pyarrow, and as options of deltalake's own client."""

from __future__ import annotations

from pathlib import Path
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

_PROVIDERS = ("AUTO", "ENV_VAR", "BASIC")
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
        if back_end == "S3":
            self.uri = f"s3://{urlsplit(self.uri).netloc}{urlsplit(self.uri).path}"
            _check_provider(properties)
            self.options = _options_of_s3(properties)

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


def _check_provider(properties: Properties) -> None:
    """Raises: ConfigurationError for credentials that neither client would get: they would go with others."""
    provider = properties.value(CREDENTIALS_PROVIDER)
    if provider not in _PROVIDERS:
        reason = (
            "the clients of a table in S3 do not take it: have AWS_PROFILE, AWS_ROLE_ARN or keys in the environment"
        )
        raise ConfigurationError(CREDENTIALS_PROVIDER.key, provider, ", ".join(_PROVIDERS), reason=reason)


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
