"""Takes from clients of the source what lets them publish, and gives it back. Each step can be killed, and repeated.

Why: docs/decisions/0067-migrate-verdict.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agent.core.migration.fences import SETTLED_AFTER, ClientFence, Permissions, read_fence
from agent.core.migration.verdict import PRODUCT, SourceLook, strangers
from agent.core.settings import DownstreamSettings
from agent.core.text import listed
from agent.errors import PermanentError, TransientError, UsageError
from agent.management.changing import FencingClient
from agent.management.transport import NotTakenError
from agent.migration.observing import fence_look, movers_of, need_administrator, now_at

_TRIES: Final = 5
_NOBODY: Final = ClientFence("", "", Permissions("", "", ""))


@dataclass(frozen=True, slots=True)
class FenceAccount:
    """By vhost and user: what was done, and what wasn't, and why."""

    done: Mapping[tuple[str, str], str]
    left: Mapping[tuple[str, str], str]
    problems: Sequence[str] = ()
    """Fences that are left besides, or missing, and why."""
    closed: int = 0
    """Connections."""
    older: int = 0
    """Connections that may still publish, until they are closed."""


async def fence(
    client: FencingClient,
    source: DownstreamSettings,
    vhosts: Collection[str],
    users: Collection[str],
    *,
    closes: bool,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> FenceAccount:
    """Takes `write` and `configure` of the users in the vhosts. Raises UsageError and BrokerError, also where somebody
    else may publish there."""
    movers = movers_of(source)
    if moving := sorted({*users} & {*movers, *(url.user for url in source.management)}):
        raise UsageError(f"the move itself needs its user {moving[0]!r}: fence the clients' users")
    await need_administrator(client)
    look = await fence_look(client)
    pairs = sorted(pair for pair in look.permissions if pair[0] in vhosts and pair[1] in users)
    if missing := sorted({*users} - {user for _, user in pairs}):
        raise PermanentError(f"source: user {missing[0]!r} has no permissions in any vhost of the file")
    _refuse_for_others(look, vhosts, users, movers)
    done, left = await _take_all(client, pairs)
    # One that is made at once again would look like those of before, and listing them takes seconds, too.
    await sleep(SETTLED_AFTER + 1 if closes else 0)
    older = await _older(client, done)
    if not closes:
        return FenceAccount(done, left, older=len(older))
    for name in older:
        await client.close_connection(name)
    return FenceAccount(done, left, closed=len(older))


def _refuse_for_others(
    look: SourceLook, vhosts: Collection[str], users: Collection[str], movers: Collection[str]
) -> None:
    for each in look.connections:
        if each.product == PRODUCT and each.user in users and each.vhost in {None, *vhosts}:
            raise PermanentError(
                f"source: nothing is fenced, as an agent is connected as user {each.user!r}, and would be fenced with "
                "the clients: give it a user of its own"
            )
    others = [f"vhost {vhost!r}: {each}" for vhost in vhosts for each in strangers(look, vhost, movers, users)]
    if others:
        what = listed(others, separator="; ")
        raise PermanentError(f"source: nothing is fenced, as others may publish: {what}. Fence their users, too")


async def _take_all(client: FencingClient, pairs: Iterable[tuple[str, str]]) -> tuple[dict[tuple[str, str], str], ...]:
    """Those that are taken, and those that can't be."""
    done: dict[tuple[str, str], str] = {}
    left: dict[tuple[str, str], str] = {}
    for pair in pairs:
        try:
            await _take(client, *pair)
            done[pair] = "is fenced"
        except PermanentError as error:
            left[pair] = str(error)
    return done, left


async def _take(client: FencingClient, vhost: str, user: str) -> None:
    """Take a user's permissions in a vhost. What they were is remembered first, and is not overwritten while they are
    taken; `since` is written last, and anew each time: somebody may have given them back and taken them again
    meanwhile."""
    had, known = await _as_they_are(client, vhost, user)
    if known is None and had.are_taken:
        raise PermanentError(
            "it may not publish already, and nothing says what it could before: give it that back by hand, and fence "
            "it; if it never could, write its permissions as '' instead of '^$'"
        )
    now = replace(known, since=None) if known is not None and had.are_taken else ClientFence(vhost, user, had)
    await client.remember(now.name, now.value)
    await client.set_permissions(vhost, user, had.taken())
    # The clock's answer is cut to whole seconds.
    await client.remember(now.name, replace(now, since=now_at(client).timestamp() + 1).value)


async def _as_they_are(client: FencingClient, vhost: str, user: str) -> tuple[Permissions, ClientFence | None]:
    """The permissions, and what is remembered of before. Those of before and after that look have to be the same:
    another host may fence or give back meanwhile."""
    name = replace(_NOBODY, vhost=vhost, user=user).name
    for _ in range(_TRIES):
        before = await client.permissions_in(vhost, user)
        value = await client.global_parameter(name)
        after = await client.permissions_in(vhost, user)
        if before is None or after is None:
            raise PermanentError(f"source: user {user!r} has no permissions in vhost {vhost!r} any more")
        if before == after:
            known = read_fence(name, value)
            if value is not None and known is None:
                raise PermanentError(
                    f"source: the global parameter {name!r} isn't what a fence writes: look what it says about user "
                    f"{user!r}, and delete it"
                )
            return after, known
    raise TransientError(f"source: somebody else changes the permissions of user {user!r} in vhost {vhost!r}")


async def _older(client: FencingClient, pairs: Collection[tuple[str, str]]) -> list[str]:
    look = await fence_look(client)
    return [
        each.name
        for each in look.connections
        if (pair := (each.vhost or "", each.user or "")) in pairs
        and not look.fences.get(pair, _NOBODY).covers(each.connected_at)
    ]


async def unfence(
    client: FencingClient, vhosts: Collection[str], users: Collection[str], *, is_forced: bool
) -> FenceAccount:
    """Gives back what is remembered of these users, or of all where none is given. Raises BrokerError."""
    await need_administrator(client)
    look = await fence_look(client)
    done: dict[tuple[str, str], str] = {}
    left: dict[tuple[str, str], str] = {}
    for pair, known in sorted(look.fences.items()):
        if known.vhost in vhosts and (not users or known.user in users):
            reason = await _give_back(client, known, is_forced=is_forced)
            (done if reason is None else left)[pair] = reason or "has its permissions again"
    return FenceAccount(done, left, [*look.doubts, *_not_found(look, vhosts, users)])


def _not_found(look: SourceLook, vhosts: Collection[str], users: Collection[str]) -> Iterator[str]:
    """Fences of these users that aren't given back, as the file doesn't name their vhosts, and who has none there."""
    for user in users:
        fenced = {vhost for vhost, each in look.fences if each == user}
        elsewhere = sorted(fenced.difference(vhosts))
        if elsewhere:
            names = listed(list(map(repr, elsewhere)))
            yield f"user {user!r} is also fenced in vhosts that the file doesn't have: {names}"
        elif not fenced:
            yield f"user {user!r} isn't fenced"


async def _give_back(client: FencingClient, known: ClientFence, *, is_forced: bool) -> str | None:
    """Give back what a fence took; return the reason if that isn't done. It is forgotten last."""
    now = await client.permissions_in(known.vhost, known.user)
    if now is None and not is_forced:
        return "the user is gone, or has no permissions there any more: --force forgets what it had"
    if now is not None and now != now.given_back(known.had):
        if not now.are_taken and not is_forced:
            return "its permissions were changed since: look at them; --force gives back what it had"
        try:
            await client.set_permissions(known.vhost, known.user, now.given_back(known.had))
        except NotTakenError as error:
            return f"the broker refuses it: {error.what}"
    await client.forget(known.name)
    again = await client.permissions_in(known.vhost, known.user)
    if again is not None and again.are_taken and not known.had.are_taken:
        await client.remember(known.name, replace(known, since=None).value)
        return "somebody fenced it again at the same time"
    return None
