"""Network namespaces for tests: places whose links are really cut, all of it inside this machine.

Every place has two links: one to the other places, over a bridge without an address of this
machine's, and one to the tests. A link is cut on the side of the place, so that this machine still
sends there, and what it sends is lost.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from engine_servers import Place


@dataclass(frozen=True)
class Namespace(Place):
    """A place with a network stack of its own."""

    name: str = ""

    def cut(self, *links: str) -> None:
        """Packets over these links, "peers" or "tests", are lost until `heal`."""
        self._set(links, "down")

    def heal(self, *links: str) -> None:
        self._set(links, "up")

    def _set(self, links: tuple[str, ...], state: str) -> None:
        for link in links:
            ip("-n", self.name, "link", "set", link, state)


def ip(*arguments: str) -> None:
    """A command of iproute2."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextmanager
def namespaces(count: int) -> Iterator[list[Namespace]]:
    """Places that reach each other and are reached from here, or a skipped test."""
    if shutil.which("ip") is None:
        pytest.skip("namespaces are made by `ip`, which is not installed: package iproute2")
    own = os.getpid()
    bridge, net = f"hp{own}", own % 250
    with ExitStack() as stack:
        try:
            ip("link", "add", bridge, "type", "bridge")
            stack.callback(ip, "link", "delete", bridge)
            for i in range(count):
                ip("netns", "add", f"hplus-{own}-{i}")
                stack.callback(ip, "netns", "delete", f"hplus-{own}-{i}")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces can be made here: {error.stderr.strip()}")
        ip("link", "set", bridge, "up")
        made = []
        for i in range(count):
            # Addresses that RFC 2544 has set aside for tests of networks.
            here, there = (f"198.18.{net}.{4 * i + side}" for side in (1, 2))
            name, peer = f"hplus-{own}-{i}", f"198.19.{net}.{i + 1}"
            ip("-n", name, "link", "set", "lo", "up")
            for link, address in (("peers", f"{peer}/24"), ("tests", f"{there}/30")):
                outer = f"{bridge}{link[0]}{i}"
                ip("link", "add", outer, "type", "veth", "peer", link, "netns", name)
                # A namespace that was deleted is cleared away at some later time.
                stack.callback(ip, "link", "delete", outer)
                ip("-n", name, "address", "add", address, "dev", link)
                ip("-n", name, "link", "set", link, "up")
                ip("link", "set", outer, "up")
            ip("link", "set", f"{bridge}p{i}", "master", bridge)
            ip("address", "add", f"{here}/30", "dev", f"{bridge}t{i}")
            made.append(Namespace(there, peer, ("ip", "netns", "exec", name), name))
        yield made
