"""Where a collection is: `scheme://host:port,host:port/name?option=value`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from hplus.errors import InputError

SCHEMES = {"qdrant": "qdrant", "postgresql": "postgresql", "postgres": "postgresql"}


@dataclass(frozen=True)
class Address:
    """An engine's hosts in the order in which they are tried, and the name of a collection there.

    It prints without a password.
    """

    scheme: str
    url: str
    hosts: tuple[tuple[str, int | None], ...]
    name: str
    options: dict[str, str]

    def __str__(self) -> str:
        hosts = ",".join(host if port is None else f"{host}:{port}" for host, port in self.hosts)
        return f"{self.scheme}://{hosts}/{self.name}"

    def number(self, name: str, default: float) -> float:
        """An option that is a number above 0."""
        try:
            value = float(self.options.get(name, default))
        except ValueError:
            value = 0.0
        if not 0 < value < float("inf"):
            raise InputError(
                f"{self}: expected {name} to be a number above 0, got {self.options[name]!r}"
            )
        return value


def parse(url: str) -> Address:
    """An address from what a person wrote.

    >>> str(parse("qdrant://10.0.0.1:6334,10.0.0.2:6334/papers?timeout=5"))
    'qdrant://10.0.0.1:6334,10.0.0.2:6334/papers'
    """
    example = "qdrant://localhost:6334/papers"
    if not isinstance(url, str):
        raise InputError(f"expected an address such as {example}, got {type(url).__name__}")
    try:
        parts = urlsplit(url)
    except ValueError as error:  # brackets that hold no IPv6 address
        raise InputError(f"expected an address such as {example}, got {url!r:.100}") from error
    if parts.scheme not in SCHEMES:
        raise InputError(f"expected an address such as {example}, got {url!r:.100}")
    hosts = []
    netloc = parts.netloc.rpartition("@")[2]
    if not netloc and SCHEMES[parts.scheme] == "postgresql":
        netloc = "localhost"  # a socket, which the options name
    for one in netloc.split(","):
        host, colon, port = one.rpartition(":")
        if not colon:
            host, port = one, ""
        if not host or (port and not (port.isdigit() and 0 < int(port) < 65_536)):
            raise InputError(f"expected host:port after {parts.scheme}://, got {one!r}")
        hosts.append((host, int(port) if port else None))
    name = unquote(parts.path.strip("/"))
    if not name or "/" in name:
        raise InputError(f"expected one name after the host, as in {example}, got {parts.path!r}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Address(SCHEMES[parts.scheme], url, tuple(hosts), name, options)
