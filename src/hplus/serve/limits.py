"""What one client can ask for: everything that takes memory or time has a number here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of a service.

    requests       requests at work at once; more are answered with 503.
    connections    open connections; more are closed at once.
    body           bytes of a request; of a stream of documents, bytes of one line.
    seconds        from the first byte of a request to its answer, and between two parts of a
                   stream; changes have `write_seconds`, since they encode.
    header_seconds from the first byte of a request, or from connecting, to the end of its headers.
    query, text    characters of a query, and of any other text.
    texts          texts, queries or ids of one request.
    k, reach       hits of one page, and how far down from_ + k may go.
    pool           candidates of each branch.
    threads        searches at a time, and queries encoded in one pass.
    """

    requests: int = 128
    connections: int = 1024
    body: int = 16 << 20
    seconds: float = 30.0
    write_seconds: float = 600.0
    header_seconds: float = 10.0
    query: int = 8_192
    text: int = 2 << 20
    texts: int = 1_000
    k: int = 1_000
    reach: int = 10_000
    pool: int = 10_000
    threads: int = 4
