"""What the cluster of each file is called, and which files belong to one cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from agent.core.addresses.uri import AmqpUri
from agent.core.model import ExchangeLink, ShovelLink
from agent.core.topology.members import Member, address_of, is_loopback, supposed_names, written


def name(members: Sequence[Member]) -> tuple[Member, ...]:
    """Names those that have no `cluster`, which is their group. Files of one group whose links differ are no replicas:
    one of them may be a copy in which the group was left as it was.

    Where no other file has the same downstream, its address is the name. Where others have, they are replicas if the
    address isn't a loopback address and their links are the same. Otherwise nothing shows whether they are one cluster:
    each file is a cluster of its own, called by the file, and that its address is not its alone shows that it can't be
    recognised.
    """
    named = tuple(member for member in members if member.cluster)
    groups = {cluster: [each for each in named if each.cluster == cluster] for cluster in {m.cluster for m in named}}
    doubtful = {cluster for cluster, group in groups.items() if not _have_same_links(group)}
    found = {member.source: replace(member, is_guessed=member.cluster in doubtful) for member in named}
    for alike in _sharing([member for member in members if not member.cluster]):
        first = alike[0].uris[0]
        taken = any(each.addresses & member.addresses for each in alike for member in named)
        if not taken and (len(alike) == 1 or _are_replicas(alike)):
            found |= {each.source: replace(each, cluster=written(first), is_guessed=len(alike) > 1) for each in alike}
        else:
            found |= {each.source: replace(each, cluster=_by_file(each, members), is_apart=True) for each in alike}
    return tuple(found[member.source] for member in members)


def names_of(member: Member) -> Iterator[str]:
    """By which people may call the cluster of this file."""
    yield from (member.cluster, member.source, _file_name(member), _stem(member))


def _by_file(member: Member, members: Sequence[Member]) -> str:
    """Without folder and extension where that is unique."""
    stems = Counter(map(_stem, members))
    stem = _stem(member)
    is_group = any(each.cluster == stem and each.source != member.source for each in members)
    return member.source if stems[stem] > 1 or is_group else stem


def _file_name(member: Member) -> str:
    return member.source.rpartition("/")[2]


def _stem(member: Member) -> str:
    file_name = _file_name(member)
    return file_name.rpartition(".")[0] or file_name


def _sharing(members: Sequence[Member]) -> list[list[Member]]:
    """Those with an address in common together."""
    found: list[list[Member]] = []
    for member in members:
        beside = [each for each in found if any(member.addresses & other.addresses for other in each)]
        found = [each for each in found if each not in beside]
        found.append([*(other for each in beside for other in each), member])
    return found


def _are_replicas(members: Sequence[Member]) -> bool:
    if any(is_loopback(host) for member in members for host, _ in member.addresses):
        return False
    return _have_same_links(members)


def _have_same_links(members: Sequence[Member]) -> bool:
    exchanges, queues = supposed_names(members), supposed_names(members, of_queues=True)
    return len({_links(member, exchanges, queues) for member in members}) == 1


def _links(member: Member, exchanges: Collection[str], queues: Collection[str]) -> frozenset[object]:
    """What makes them the same; passwords may differ."""
    return frozenset(
        (link.id, link.vhost, link.remote_name, frozenset(map(address_of, link.uris)), _hops(link))
        if not isinstance(link, ShovelLink)
        else (link.id, link.vhost, *(frozenset(map(address_of, uris)) for uris in _ends(link)))
        for link in member.links(exchanges, queues)
    )


def _ends(link: ShovelLink) -> Iterator[tuple[AmqpUri, ...]]:
    yield from (link.shovel.source_uris, link.shovel.destination_uris)


def _hops(link: object) -> int | None:
    return link.settings.max_hops if isinstance(link, ExchangeLink) else None
