"""SubscribeToShard over HTTP/2 (the extra `http2`). Only this package imports `h2`, and only on use. Start at `http2_sender.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordpublisher.extras import install_command
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.config_fields import values_of
from recordpublisher.publishers.properties.groups.reading import HTTP_PROTOCOL
from recordpublisher.publishers.properties.properties import Properties

if TYPE_CHECKING:
    from .http2_sender import Http2Sender


def make_http2_sender(properties: Properties, ca_bundle: str | None) -> Http2Sender | None:
    """Make the sender of subscriptions, or return None if the properties do not select HTTP/2.

    Raises: ConfigurationError if the extra is not installed.
    """
    if properties.value(HTTP_PROTOCOL) != "HTTP2":
        return None
    try:
        from .http2_connection import Http2Settings
        from .http2_sender import Http2Sender
    except ImportError as error:
        reason = f"HTTP2 needs the extra 'http2': {install_command('http2')}"
        raise ConfigurationError(HTTP_PROTOCOL.key, "HTTP2", HTTP_PROTOCOL.valid, reason=reason) from error
    return Http2Sender(Http2Settings(ca_bundle, **values_of(Http2Settings, properties)))
