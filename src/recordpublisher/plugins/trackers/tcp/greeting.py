"""The greeting: the server asks with a random number, and only who has the token can answer; the token itself never travels (C3)."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Literal

import msgspec

VERSION = 1


class Challenge(msgspec.Struct, frozen=True, array_like=True, tag="challenge"):
    """The server's first frame."""

    version: int
    number: bytes


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """The client's first frame: the keyed hash (HMAC-SHA256) of the number under the token."""

    version: int
    keyed_hash: bytes


class Farewell(msgspec.Struct, frozen=True, array_like=True, tag="farewell"):
    """Why the server hangs up."""

    reason: Literal["token", "version", "full"]


def new_challenge() -> Challenge:
    """One that was never used before."""
    return Challenge(VERSION, secrets.token_bytes(32))


def proof_of(token: str, challenge: Challenge) -> Proof:
    """The answer of somebody who has the token."""
    return Proof(VERSION, hmac.digest(token.encode(), b"recordpublisher tracker" + challenge.number, hashlib.sha256))


def is_proof(proof: Proof, token: str, challenge: Challenge) -> bool:
    """Whether the answer is right; takes the same time for every wrong one."""
    return hmac.compare_digest(proof.keyed_hash, proof_of(token, challenge).keyed_hash)
