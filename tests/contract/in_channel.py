"""Settings that a broker gives to each channel when it is opened, changed in one channel: others keep theirs."""

from __future__ import annotations

from typing import Final

from tests.contract.asking import Release

_CONSUMERS: Final = (
    '{{ok, Queue}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}"/utf8>>, queue, <<"{queue}"/utf8>>)), '
    "Channels = [element(1, Consumer) || Consumer <- rabbit_amqqueue:consumers(Queue)], "
)
_CHANGE: Final = (
    "Each = fun(In, Change) -> list_to_tuple([Change(Part) || Part <- tuple_to_list(In)]) end, "
    "Value = fun({before}) -> {now}; (Other) -> Other end, "
    "Settings = fun(Part) when element(1, Part) =:= conf -> Each(Part, Value); (Other) -> Other end, "
    "Channel = fun(Part) when element(1, Part) =:= ch -> Each(Part, Settings); (Other) -> Other end, "
    "[sys:replace_state(Pid, fun(State) -> Each(State, Channel) end) || Pid <- Channels], ok."
)
_TICK: Final = "[Pid ! tick || Pid <- Channels], ok."


def changed_in_channel(release: Release, queue: str, before: int, now: int) -> None:
    """In the channel that consumes from the queue, each setting of one value is given another."""
    _told(release, queue, _CHANGE.format(before=before, now=now))


def look_at_timeouts(release: Release, queue: str) -> None:
    """The channel that consumes from the queue does what it does every minute."""
    _told(release, queue, _TICK)


def _told(release: Release, queue: str, what: str) -> None:
    release.node.eval(_CONSUMERS.format(vhost=release.vhost, queue=queue) + what)
