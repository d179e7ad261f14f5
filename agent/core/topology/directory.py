"""Whose address is whose."""

from __future__ import annotations

from collections.abc import Iterable

from agent.core.addresses.uri import AmqpUri
from agent.core.topology.members import Address, Member, address_of, is_loopback, written


class Directory:
    """The addresses of all members."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._by_address: dict[Address, set[str]] = {}
        self._by_host: dict[str, set[str]] = {}
        members = tuple(members)
        self._clusters = frozenset(member.cluster for member in members)
        for member in members:
            for host, port in member.addresses:
                self._by_address.setdefault((host, port), set()).add(member.cluster)
                if not is_loopback(host):
                    self._by_host.setdefault(host, set()).add(member.cluster)

    def cluster_of(self, uris: tuple[AmqpUri, ...], member: Member) -> str:
        """A cluster that no member stands beside is called by its address."""
        address = written(uris[0])
        return self.find(uris, member) or (f"{address} of {member.cluster}" if address in self._clusters else address)

    def find(self, uris: Iterable[AmqpUri], member: Member) -> str | None:
        """The port may be another than the member's own, such as that for TLS. A loopback address leads from one
        member to another only if both use such addresses, as where all run on one host."""
        uris = tuple(uris)
        if any(uri.is_downstream_itself or address_of(uri) in member.addresses for uri in uris):
            return member.cluster
        is_local = any(is_loopback(host) for host, _ in member.addresses)
        for uri in uris:
            host, _ = address = address_of(uri)
            if is_loopback(host) and not is_local:
                continue
            for found in (self._by_address.get(address, ()), self._by_host.get(host, ())):
                if len(found) == 1:
                    return next(iter(found))
        return None

    def is_hidden(self, member: Member) -> bool:
        """Whether no other cluster can know it by its addresses: they lead to whatever host they are used on, or
        others have them too."""
        return all(is_loopback(host) or not self.is_only((host, port)) for host, port in member.addresses)

    def is_only(self, address: Address) -> bool:
        """Whether it is of one cluster."""
        return len(self._by_address.get(address, ())) == 1
