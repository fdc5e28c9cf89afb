"""UNDECODABLE: what decoding of foreign bytes raises."""

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Of JSON and MessagePack: malformed or of another type, text that is no UTF-8, nested too deeply."""
