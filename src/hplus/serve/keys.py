"""Keys of clients: a file with one per line, `read KEY` or `write KEY`; a write key may read too.

Keys are kept and compared as hashes, all of them for every request and in constant time, so that
neither the comparison nor the order in the file tells anything about a key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hplus.errors import InputError
from hplus.files import numbered_lines

Scope = Literal["read", "write"]
LEAST = 16
"""Characters of a key, at least: nobody guesses them."""


@dataclass(frozen=True)
class Keys:
    """SHA-256 of each key, and whether it may write."""

    hashes: tuple[tuple[bytes, bool], ...]

    @classmethod
    def read(cls, path: Path) -> Keys:
        """The keys of a file."""
        found = []
        for number, line in numbered_lines(path):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or words[0] not in ("read", "write"):
                raise InputError(f"{path}:{number}: expected `read KEY` or `write KEY`")
            if len(words[1]) < LEAST or not words[1].isascii():
                raise InputError(
                    f"{path}:{number}: expected a key of {LEAST} or more ASCII characters; make "
                    "one with: python -c 'import secrets; print(secrets.token_urlsafe(24))'"
                )
            found.append((_hash(words[1].encode()), words[0] == "write"))
        if not found:
            raise InputError(f"{path} has no keys; expected lines such as `read KEY`")
        return cls(tuple(found))

    def scopes(self, authorization: bytes) -> set[Scope]:
        """What the header `Authorization` permits."""
        given = _hash(_key(authorization))
        scopes: set[Scope] = set()
        for known, may_write in self.hashes:
            same = hmac.compare_digest(known, given)
            scopes |= ({"read", "write"} if may_write else {"read"}) if same else set()
        return scopes


def _key(authorization: bytes) -> bytes:
    """The key of `Bearer KEY`, or the password of `Basic …`: what browsers ask for."""
    kind, _, value = authorization.partition(b" ")
    if kind.lower() == b"basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return value.strip() if kind.lower() == b"bearer" else b""


def _hash(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
