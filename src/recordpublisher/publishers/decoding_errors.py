"""Defines UNDECODABLE, the errors that can be raised when bytes from outside are decoded.

It is not in `errors.py`, because the demo imports that module before any package is installed.
"""

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of decoding JSON or MessagePack that is malformed, of another type, not UTF-8, or nested too deeply."""
