"""UNDECODABLE, the errors that decoding foreign bytes can raise.

It is not in `errors.py`, which needs no package outside Python: the demo uses it before anything is installed.
"""

import msgspec

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors for JSON and MessagePack that is malformed or of another type, that is not UTF-8, or that is nested too deeply."""
