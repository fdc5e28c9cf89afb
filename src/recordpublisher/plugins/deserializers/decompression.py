"""Decompressors: the payloads of a batch before the deserialiser gets them, each at most as large as a property allows."""

import zlib
from collections.abc import Callable, Sequence

from recordpublisher.extras import install_command
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.values_and_time import COMPRESSION, MAX_DECOMPRESSED_BYTES
from recordpublisher.publishers.properties.properties import Properties

GZIP_WINDOW = zlib.MAX_WBITS | 16
"""zlib: a gzip header and trailer around the deflated data."""
MAX_GZIP_MEMBERS = 100
"""zlib copies the rest of a payload after each member: without a limit, a payload of empty members takes minutes."""


class BoundedDecompressor:
    """Decompresses payloads with a function that gets a payload and the largest allowed size."""

    replaces_data = True

    def __init__(self, name: str, decompress: Callable[[bytes, int], bytes], max_bytes: int) -> None:
        self._name = name
        self._decompress = decompress
        self._max_bytes = max_bytes

    def decompress(self, payloads: Sequence[bytes]) -> list[bytes]:
        """Each payload decompressed. Raises: ValueError for one that is not compressed so, is cut off, or is too large."""
        try:
            return [self._decompress(payload, self._max_bytes) for payload in payloads]
        except Exception as error:
            raise ValueError(
                f"the payload cannot be decompressed ({COMPRESSION.key}={self._name}) to at most {self._max_bytes} bytes "
                f"({MAX_DECOMPRESSED_BYTES.key}): {error}"
            ) from error


def decompressor_for(properties: Properties) -> BoundedDecompressor | None:
    """The decompressor of `flink.deserializer.compression`; None for NONE. Raises: ConfigurationError without its library."""
    name, max_bytes = properties.value(COMPRESSION), properties.value(MAX_DECOMPRESSED_BYTES)
    if name == "NONE":
        return None
    function = gunzip if name == "GZIP" else _from_cramjam(name, max_bytes)
    return BoundedDecompressor(name, function, max_bytes)


def gunzip(payload: bytes, max_bytes: int) -> bytes:
    """A gzip file of one or more members. Raises: ValueError, zlib.error."""
    parts: list[bytes] = []
    size = 0
    while payload or not parts:
        if len(parts) == MAX_GZIP_MEMBERS:
            raise ValueError(f"it has more than {MAX_GZIP_MEMBERS} gzip members")
        member = zlib.decompressobj(GZIP_WINDOW)
        parts.append(member.decompress(payload, max_bytes - size + 1))
        size += len(parts[-1])
        if size > max_bytes:
            raise ValueError("it is larger")
        if not member.eof:
            raise ValueError("it ends too early")
        payload = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _from_cramjam(name: str, max_bytes: int) -> Callable[[bytes, int], bytes]:
    """The payload is decompressed into one buffer of the largest size, which bounds what a hostile payload can allocate."""
    try:
        import cramjam
    except ImportError as error:
        reason = f"it needs the extra 'compression': {install_command('compression')}"
        raise ConfigurationError(COMPRESSION.key, name, "NONE, GZIP without that extra", reason=reason) from error
    decompress_into = cramjam.zstd.decompress_into if name == "ZSTD" else cramjam.snappy.decompress_raw_into
    buffer = bytearray(max_bytes)
    view = memoryview(buffer)

    def decompress(payload: bytes, _max_bytes: int) -> bytes:
        return bytes(view[: decompress_into(payload, buffer)])

    return decompress
