"""Decompresses the payloads of a batch before the deserializer gets them. A property limits the size of each payload."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from recordpublisher.install_commands import install_command
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.job_properties import COMPRESSION, MAX_DECOMPRESSED_BYTES
from recordpublisher.publishers.properties.properties import Properties

GZIP_WINDOW = zlib.MAX_WBITS | 16
"""The window size for zlib, with the flag for a gzip header and trailer around the data."""
MAX_GZIP_MEMBERS = 100
"""Most gzip members of a payload.

After each member zlib copies the rest of the payload, so a payload of many empty members would take minutes.
"""


def decompressor_for(properties: Properties) -> BoundedDecompressor | None:
    """Return the decompressor for `flink.deserializer.compression`; None for NONE. Raises: ConfigurationError if its library is missing."""
    name, max_bytes = properties.value(COMPRESSION), properties.value(MAX_DECOMPRESSED_BYTES)
    if name == "NONE":
        return None
    function = gunzip if name == "GZIP" else _from_cramjam(name, max_bytes)
    return BoundedDecompressor(name, function, max_bytes)


class BoundedDecompressor:
    """Decompresses payloads with a function that receives a payload and the largest allowed size (bytes)."""

    replaces_data = True

    def __init__(self, name: str, decompress: Callable[[bytes, int], bytes], max_bytes: int) -> None:
        self._name = name
        self._decompress = decompress
        self._max_bytes = max_bytes

    def decompress(self, payloads: Sequence[bytes]) -> list[bytes]:
        """Return each payload decompressed. Raises: ValueError if a payload has another format, is truncated, or is too large."""
        try:
            return [self._decompress(payload, self._max_bytes) for payload in payloads]
        except Exception as error:
            raise ValueError(
                f"the payload cannot be decompressed ({COMPRESSION.key}={self._name}) to at most {self._max_bytes} bytes "
                f"({MAX_DECOMPRESSED_BYTES.key}): {error}"
            ) from error


def gunzip(payload: bytes, max_bytes: int) -> bytes:
    """Decompress a gzip file of one or more members.

    Raises: ValueError if it has too many members, is too large, or is truncated; zlib.error if it is not in gzip format.
    """
    parts: list[bytes] = []
    size = 0
    while payload or not parts:
        if len(parts) == MAX_GZIP_MEMBERS:
            raise ValueError(f"the payload has more than {MAX_GZIP_MEMBERS} gzip members")
        member = zlib.decompressobj(GZIP_WINDOW)
        parts.append(member.decompress(payload, max_bytes - size + 1))
        size += len(parts[-1])
        # One byte more than the limit was requested, so a payload that is too large is found before all of it is in memory.
        if size > max_bytes:
            raise ValueError("it is larger")
        if not member.eof:
            raise ValueError("it ends too early")
        payload = member.unused_data  # The next member follows directly.
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _from_cramjam(name: str, max_bytes: int) -> Callable[[bytes, int], bytes]:
    """Return a function of cramjam that decompresses into a buffer of `max_bytes`, so that no payload can allocate more.

    Raises: ConfigurationError if the extra `compression` is missing.
    """
    try:
        import cramjam
    except ImportError as error:
        reason = f"it needs the extra 'compression': {install_command('compression')}"
        raise ConfigurationError(COMPRESSION.key, name, "NONE, GZIP", reason=reason) from error
    decompress_into = cramjam.zstd.decompress_into if name == "ZSTD" else cramjam.snappy.decompress_raw_into
    buffer = bytearray(max_bytes)
    view = memoryview(buffer)

    def decompress(payload: bytes, _max_bytes: int) -> bytes:
        return bytes(view[: decompress_into(payload, buffer)])

    return decompress
