"""Every check of a configuration on the real brokers, and what it found. Nothing is changed anywhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from shlex import quote
from typing import Final

from agent.check.alarms import judge_alarms
from agent.check.connections import Tried, endpoints_of, try_all
from agent.check.context import Apis, Scene, ends_of, judge_given, opened_by_endpoint, working_addresses
from agent.check.findings import Finding, Level, Topic, in_order
from agent.check.http_api import Api
from agent.check.loops import Way, judge_loops
from agent.check.permissions import Account, accounts_of, judge, judge_tags, present_grant
from agent.check.queues import judge_alternates, judge_events, judge_queues
from agent.check.releases import judge_clock, judge_opened, judge_pair
from agent.check.topics import judge_topics
from agent.core.addresses.http_url import HttpUrl
from agent.core.links.plan import Outlook
from agent.core.model import Definitions, native_link
from agent.core.permissions import Grant
from agent.definitions.sources.load import Configuration
from agent.definitions.sources.references import may_be_elsewhere
from agent.errors import BrokerError, Failure, FailureKind, Severity
from agent.runtime.survey import Agent, Survey, survey

Trial = Callable[[Scene], AsyncIterator[Finding]]

_LEVELS: Final = {Severity.ERROR: Level.ERROR, Severity.WARNING: Level.WARNING, Severity.NOT_RUN: Level.WARNING}
ASKING: Final = 60.0  # seconds for all questions to HTTP APIs, and for looking at what links depend on
LOOPS: Final = 10.0
READING: Final = 60.0  # seconds for reading the downstream and looking at all links


@dataclass(frozen=True, slots=True)
class Checked:
    findings: tuple[Finding, ...]
    tried: tuple[Tried, ...]
    scene: Scene


async def check(
    configuration: Configuration,
    *,
    apis: Mapping[str, Sequence[HttpUrl]],
    agent: Agent | None = None,
    trial: Trial | None = None,
    clock: Callable[[], float] = time.time,
) -> Checked:
    """`apis` are HTTP APIs of further brokers, by the name of an upstream or by HOST:PORT; `trial` comes last. Raises
    ConfigurationError where sources of definitions conflict."""
    async with AsyncExitStack() as stack:
        opened = await _open_apis(configuration, apis, stack, clock)
        checking = _Checking(configuration, opened, clock, stack)
        checked = await checking.run(agent)
        if trial is None:
            return checked
        trials = await _all(trial(checked.scene))
        return replace(checked, findings=tuple(in_order([*checked.findings, *trials])))


async def _open_apis(
    configuration: Configuration,
    given: Mapping[str, Sequence[HttpUrl]],
    stack: AsyncExitStack,
    clock: Callable[[], float],
) -> Apis:
    downstream = configuration.settings.downstream
    own = None
    if downstream.management:
        made = Api(downstream.management, where="downstream", setting="downstream.management", clock=clock)
        own = await stack.enter_async_context(made)
    others = {
        name: await stack.enter_async_context(Api(urls, where=f"HTTP API of {name}", setting="--api", clock=clock))
        for name, urls in given.items()
    }
    return Apis(downstream.uris, own, others)


async def _configured_apis(
    definitions: Definitions, stack: AsyncExitStack, clock: Callable[[], float]
) -> Mapping[str, Api]:
    """Those that upstreams name; upstreams with the same addresses share one."""
    opened: dict[tuple[HttpUrl, ...], Api] = {}
    found: dict[str, Api] = {}
    for vhost, of_vhost in definitions.vhosts.items():
        for each in of_vhost.upstreams.values():
            if not each.management:
                continue
            if each.management not in opened:
                where = f"upstream {each.name}"
                made = Api(each.management, where=where, setting=f"management of {where}", clock=clock)
                opened[each.management] = await stack.enter_async_context(made)
            found[f"{vhost}/{each.name}"] = opened[each.management]
    return found


class _Checking:
    """`stack` closes the HTTP APIs that it opens."""

    def __init__(
        self, configuration: Configuration, apis: Apis, clock: Callable[[], float], stack: AsyncExitStack
    ) -> None:
        self._configuration = configuration
        self._apis = apis
        self._clock = clock
        self._stack = stack
        self._findings: list[Finding] = []

    async def run(self, agent: Agent | None) -> Checked:
        found = await self._survey(agent)
        definitions = self._configuration.definitions if found is None else found.reading.definitions
        downstream = self._configuration.settings.downstream.uris
        self._apis = replace(self._apis, configured=await _configured_apis(definitions, self._stack, self._clock))
        tried = await try_all(endpoints_of(definitions, downstream))
        scene = Scene(
            () if found is None else tuple(ends_of(each, downstream) for each in found.plan.links),
            opened_by_endpoint(tried),
            "" if found is None else found.reading.cluster,
            self._apis,
            working_addresses(tried),
            frozenset(each.link.id for each in (found.plan.links if found else ()) if each.is_paused),
        )
        exchanges = {vhost: list(each.exchanges) for vhost, each in definitions.vhosts.items() if each.exchanges}
        accounts = accounts_of(scene, exchanges)
        self._findings += await _all(_unreachable(tried, accounts, scene))
        for each in tried:
            if each.opened is not None:
                self._findings += judge_opened(each.opened, self._clock())
        self._findings += _pairs(scene)
        if found is not None:
            self._findings += await _all(_links(scene, found, tried, accounts))
            self._findings += await _loops(scene.ways)
        ends = [end for each in scene.links for end in (each.source, each.destination)]
        self._findings += judge_given(self._apis.given, dict.fromkeys([*(each.endpoint for each in tried), *ends]))
        await self._ask(scene, accounts, found, tried)
        return Checked(tuple(in_order(self._findings)), tuple(tried), scene)

    async def _survey(self, agent: Agent | None) -> Survey | None:
        try:
            async with asyncio.timeout(READING):
                found = await survey(self._configuration, agent)
        except TimeoutError:
            message = f"it and the links' upstreams could not be read within {READING:g} s, so links weren't checked"
            self._findings.append(Finding(Level.ERROR, Topic.DEFINITIONS, "downstream", message, "see its log"))
            return None
        except BrokerError as error:
            message = f"its definitions and objects can't be read, so links weren't checked: {error}"
            self._findings.append(Finding(Level.ERROR, Topic.DEFINITIONS, "downstream", message))
            return None
        for problem in found.problems:
            if may_be_elsewhere(problem):
                continue  # all sources were read: what none of them defines is reported by itself
            level = _LEVELS[problem.severity]
            if problem in self._configuration.warnings and problem.severity is Severity.WARNING:
                level = Level.NOTE  # `validate` shows it and accepts the file
            self._findings.append(Finding(level, Topic.DEFINITIONS, str(problem.place), problem.message))
        if not found.plan.links:
            message = "no definition matches anything that exists downstream: there are no links"
            self._findings.append(Finding(Level.NOTE, Topic.DEFINITIONS, found.reading.broker, message))
        return found

    async def _ask(self, scene: Scene, accounts: list[Account], found: Survey | None, tried: Sequence[Tried]) -> None:
        sources: list[AsyncIterator[Finding]] = [
            judge(accounts, scene, tried),
            judge_topics(scene),
            judge_alarms(scene),
            judge_events(scene),
            judge_alternates(scene),
            judge_queues(scene, {} if found is None else found.bindings),
            *(_clock_of(api) for api in self._apis.all),
        ]
        if self._apis.own is not None:
            reads = self._configuration.settings.sources.management
            sources.append(judge_tags(self._apis.own, reads_definitions=reads))
        else:
            self._findings.append(_NO_API)
        for findings in await asyncio.gather(*(in_time(each, ASKING) for each in sources)):
            self._findings += findings
        for api in self._apis.all:
            for what, why in sorted(api.failures.items()):
                if not what.startswith("permissions of "):  # reported with the user
                    message = f"{what} can't be read, so what depends on it wasn't judged: {why}"
                    self._findings.append(Finding(Level.NOTE, Topic.DEFINITIONS, api.where, message))
            if api.failures and api in self._apis.given.values():
                message = f"asked for with --api, but it fails: {next(iter(api.failures.values()))}"
                self._findings.append(Finding(Level.WARNING, Topic.DEFINITIONS, api.where, message))


_NO_API: Final = Finding(
    Level.NOTE,
    Topic.DEFINITIONS,
    "downstream",
    "permissions, policies, alarms, the clock and the native plugins' links can't be judged without the HTTP API",
    "set downstream.management",
)


async def _all(findings: AsyncIterator[Finding]) -> list[Finding]:
    return [each async for each in findings]


async def in_time(findings: AsyncIterator[Finding], seconds: float) -> list[Finding]:
    """Those that were found until then, and whether there could be more."""
    found: list[Finding] = []
    try:
        async with asyncio.timeout(seconds):
            async for each in findings:
                found.append(each)  # noqa: PERF401 - those before the time is over are kept
    except TimeoutError:
        message = f"not everything was judged: the brokers took longer than {seconds:g} s to answer"
        found.append(Finding(Level.WARNING, Topic.DEFINITIONS, "brokers", message, "see which HTTP API is slow"))
    return found


async def _loops(ways: Sequence[Way]) -> list[Finding]:
    """Beside the event loop: it takes up to `LOOPS` seconds of CPU time."""
    ends = time.monotonic() + LOOPS
    return await asyncio.to_thread(lambda: list(judge_loops(ways, lambda: time.monotonic() < ends)))


async def _clock_of(api: Api) -> AsyncIterator[Finding]:
    difference = await api.clock_difference()
    if difference is not None:
        for each in judge_clock(api.where, difference):
            yield each


async def _unreachable(tried: Sequence[Tried], accounts: Sequence[Account], scene: Scene) -> AsyncIterator[Finding]:
    """An address that fails is an error where no other one of the same broker works."""
    working = {each.endpoint for each in tried if each.opened is not None}
    for each in tried:
        if each.error is None:
            continue
        text = str(each.error)
        level = Level.WARNING if each.endpoint in working else Level.ERROR
        kind = each.error.failure.kind
        topic = Topic.TLS if kind is FailureKind.TLS else Topic.CONNECTION
        vhost = each.uri.vhost(each.endpoint.default_vhost)
        place = each.endpoint, vhost, each.uri.login[0]
        account = next((one for one in accounts if (one.endpoint, one.vhost, one.user) == place), None)
        if account is not None and kind is FailureKind.NO_VHOST:
            fix = f"rabbitmqctl add_vhost {quote(vhost)} && {account.command(Grant())}"
        else:
            fix = await _fix(account if kind is FailureKind.PERMISSION else None, scene.apis)
        labels = tuple(link.label for link in scene.links if each.endpoint in (link.source, link.destination))
        yield Finding(level, topic, each.where, text.removeprefix(f"{each.where}: "), fix, labels)


def _pairs(scene: Scene) -> Iterator[Finding]:
    for each in dict.fromkeys((each.source, each.destination) for each in scene.links):
        source, destination = map(scene.shown, each)
        if source is not None and destination is not None:
            yield from judge_pair(source, destination)


async def _links(
    scene: Scene, found: Survey, tried: Sequence[Tried], accounts: Sequence[Account]
) -> AsyncIterator[Finding]:
    """What would keep links from running, by reason; an address that fails is reported already."""
    known = [str(each.error) for each in tried if each.error is not None]
    stopped = [each for each in scene.links if each.planned.outlook is not Outlook.RUN]
    stopped.sort(key=lambda each: (each.planned.outlook, each.planned.reason))
    for (outlook, reason), several in groupby(stopped, key=lambda each: (each.planned.outlook, each.planned.reason)):
        of_reason = list(several)
        if any(text in reason for text in known):
            continue
        labels = tuple(each.label for each in of_reason)
        where = str(of_reason[0].planned.broker)
        if outlook is not Outlook.STANDBY:
            refused = of_reason[0].planned.failure
            is_denied = refused is not None and refused.kind is FailureKind.PERMISSION
            account = next((one for one in accounts if is_denied and refused and _is_of(one, refused)), None)
            topic = Topic.PERMISSIONS if is_denied else Topic.LINK
            yield Finding(Level.ERROR, topic, where, reason, await _fix(account, scene.apis), labels)
        elif any(native_link(each.link) in found.reading.native_links for each in of_reason):
            fix = "disable the plugin on the downstream, or remove the definition from one of the two"
            yield Finding(Level.WARNING, Topic.PLUGIN, found.reading.broker, reason, fix, labels)
        else:
            yield Finding(Level.NOTE, Topic.PLUGIN, where, reason, "", labels)


async def _fix(account: Account | None, apis: Apis) -> str:
    return "" if account is None else account.command(await present_grant(account, apis))


def _is_of(account: Account, refused: Failure) -> bool:
    return (account.user, account.vhost) == (refused.user, refused.vhost)
