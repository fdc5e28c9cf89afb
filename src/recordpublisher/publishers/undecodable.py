"""UNDECODABLE, the errors that decoding foreign bytes can raise."""

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors for JSON and MessagePack that is malformed or of another type, that is not UTF-8, or that is nested too deeply."""
