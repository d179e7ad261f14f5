"""Which links have their messages from one queue upstream, as those of a renamed upstream have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from agent.core.model import ExchangeLink, Link

Place = tuple[str, int, str]
Key = tuple[str, str, str]


class SharedQueues:
    """The queues of some links; built once to be asked about many others."""

    def __init__(self, links: Iterable[Link]) -> None:
        self._links: dict[Key, list[ExchangeLink]] = defaultdict(list)
        for link in links:
            if isinstance(link, ExchangeLink):
                self._links[_key(link)].append(link)

    def have_that_of(self, link: Link) -> bool:
        """Whether the link's queue is that of one of them."""
        if not isinstance(link, ExchangeLink):
            return False
        return any(_places(link) & _places(each) for each in self._links.get(_key(link), ()))


def _key(link: ExchangeLink) -> Key:
    return link.vhost, link.name, link.remote_name


def _places(link: ExchangeLink) -> set[Place]:
    """What its addresses lead to, whoever logs in there and however."""
    return {(uri.connect_host.lower(), uri.connect_port, uri.vhost(link.vhost)) for uri in link.uris}
