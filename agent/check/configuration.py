"""Every check of a configuration on the real brokers, and what it found. Nothing is changed anywhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from shlex import quote
from typing import Final

from agent.check.brokers import (
    judge_addresses,
    judge_alarms,
    judge_alternate_exchanges,
    judge_broker,
    judge_clock,
    judge_credit,
    judge_event_exchange,
    judge_pair,
    try_all,
)
from agent.check.context import Attempt, BrokerApis, CheckContext, LinkEnds, context_of, endpoints_of, judge_given_apis
from agent.check.findings import Finding, FindingLevel, Topic, in_order
from agent.check.http_api import BrokerApi
from agent.check.loops import judge_loops
from agent.check.permissions import (
    AccountNeeds,
    accounts_of,
    command_to_grant,
    judge_permissions,
    judge_tags,
    judge_topic_permissions,
)
from agent.check.queues import judge_queues
from agent.check.standby import standby_check
from agent.core.addresses.uri import HttpUrl
from agent.core.links.plan import Outlook
from agent.core.model import Definitions, native_link
from agent.core.permissions import Grant
from agent.core.text import counted
from agent.definitions.sources.load import Configuration
from agent.errors import BrokerError, FailureKind, Problem, Severity
from agent.links.ends import DOWNSTREAM
from agent.runtime.plan_inputs import Agent, PlanInputs, read_plan_inputs

AMQP_1_0: Final = frozenset({"AMQP 1-0", "AMQP 1.0"})


async def judge_protocols(context: CheckContext) -> AsyncIterator[Finding]:
    """Find vhosts that links take messages from, and clients may publish to by AMQP 1.0. Brokers from 4.0 on keep such
    a message as it came; former ones convert it themselves."""
    links: dict[tuple[str, str], list[str]] = {}
    counts: dict[tuple[str, str], int] = {}
    for each in context.links:
        broker, api = context.broker(each.source), context.apis.of(each.source)
        if broker is None or api is None or not broker.limits_deliveries:  # since 4.0, too
            continue
        protocols = await api.protocols(broker.vhost)
        if protocols is not None:
            place = broker.where, broker.vhost
            counts[place] = sum(protocols[name] for name in AMQP_1_0)
            links.setdefault(place, []).append(each.label)
    for (where, vhost), count in counts.items():
        if count:
            yield Finding.warning(
                Topic.PROTOCOL,
                where,
                f"{counted(count, 'connection')} to vhost {vhost!r} by AMQP 1.0: what they publish reaches links by "
                "AMQP 0-9-1, which has no place for the properties to, subject and group-sequence, and keeps "
                "annotations as headers",
                "see docs/amqp10-conversion.md for what is kept and what is lost",
                tuple(links[where, vhost]),
            )


TrialRunner = Callable[[CheckContext], AsyncIterator[Finding]]

ASKING: Final = 60.0  # seconds for all questions to HTTP APIs, and for looking at what links depend on
READING: Final = 60.0  # seconds for reading the downstream and looking at all links


@dataclass(frozen=True, slots=True)
class CheckResult:
    findings: tuple[Finding, ...]
    attempts: tuple[Attempt, ...]
    context: CheckContext


async def check(
    configuration: Configuration,
    *,
    apis: Mapping[str, Sequence[HttpUrl]],
    agent: Agent | None = None,
    trial: TrialRunner | None = None,
    clock: Callable[[], float] = time.time,
) -> CheckResult:
    """`apis` are HTTP APIs of further brokers, by the name of an upstream or by HOST:PORT; `trial` comes last. Raises
    ConfigurationError where sources of definitions conflict."""
    async with AsyncExitStack() as stack:
        return await _Check(configuration, clock, stack).run(apis, agent, trial)


class _Check:
    """`stack` closes the HTTP APIs that it opens."""

    def __init__(self, configuration: Configuration, clock: Callable[[], float], stack: AsyncExitStack) -> None:
        self._configuration = configuration
        self._clock = clock
        self._stack = stack
        self._findings: list[Finding] = []

    async def run(
        self, given: Mapping[str, Sequence[HttpUrl]], agent: Agent | None, trial: TrialRunner | None
    ) -> CheckResult:
        found = await self._read(agent)
        definitions = self._configuration.definitions if found is None else found.reading.definitions
        apis = await self._open_apis(given, definitions)
        attempts = await try_all(endpoints_of(definitions, apis.downstream))
        links, cluster = ((), "") if found is None else (found.plan.links, found.reading.cluster)
        context = context_of(links, attempts, cluster, apis)
        exchanges = {vhost: list(each.exchanges) for vhost, each in definitions.vhosts.items() if each.exchanges}
        standby = await standby_check(self._configuration, context)
        accounts = accounts_of(context, exchanges, [] if standby is None else standby.needs())
        visible = None if found is None else found.reading.visible
        to_be_made = frozenset[str]()
        if standby is not None and found is not None:
            to_be_made = await standby.to_be_made(found.reading)
        tried = [each for each in attempts if not _is_about_missing(to_be_made, each)]
        self._findings += await _all(_judge_unreachable(tried, accounts, context))
        for each in attempts:
            if each.broker is not None:
                self._findings += judge_broker(each.broker, self._clock())
        self._findings += _judge_pairs(context)
        if found is not None:
            self._findings += await _all(_judge_links(context, found, attempts, accounts))
            self._findings += judge_addresses(context)
            self._findings += judge_credit(context, found.without_credit)
            self._findings += await judge_loops(context)
        ends = [end for each in context.links for end in (each.source, each.destination)]
        self._findings += judge_given_apis(apis.given, dict.fromkeys([*(each.endpoint for each in attempts), *ends]))
        if standby is not None:
            self._findings += await _all(standby.judge(visible, to_be_made))
        await self._ask(context, accounts, found, attempts)
        self._findings += [] if trial is None else await _all(trial(context))
        return CheckResult(tuple(in_order(self._findings)), tuple(attempts), context)

    async def _open_apis(self, given: Mapping[str, Sequence[HttpUrl]], definitions: Definitions) -> BrokerApis:
        """Upstreams that name the same addresses share one."""

        async def opened(urls: Sequence[HttpUrl], where: str, setting: str) -> BrokerApi:
            api = BrokerApi(urls, where=where, setting=setting, clock=self._clock)
            return await self._stack.enter_async_context(api)

        downstream = self._configuration.settings.downstream
        urls = downstream.management
        own = await opened(urls, "downstream", "downstream.management") if urls else None
        others = {name: await opened(urls, f"HTTP API of {name}", "--api") for name, urls in given.items()}
        shared: dict[tuple[HttpUrl, ...], BrokerApi] = {}
        configured: dict[str, BrokerApi] = {}
        for vhost, of_vhost in definitions.vhosts.items():
            for each in of_vhost.upstreams.values():
                where, urls = f"upstream {each.name}", each.management
                if urls:
                    shared[urls] = shared.get(urls) or await opened(urls, where, f"management of {where}")
                    configured[f"{vhost}/{each.name}"] = shared[urls]
        return BrokerApis(downstream.uris, own, others, configured)

    async def _read(self, agent: Agent | None) -> PlanInputs | None:
        where = "downstream"
        try:
            async with asyncio.timeout(READING):
                found = await read_plan_inputs(self._configuration, agent)
        except TimeoutError:
            message = f"it and the links' upstreams could not be read within {READING:g} s, so links weren't checked"
            self._findings.append(Finding.error(Topic.DEFINITIONS, where, message, "see its log"))
            return None
        except BrokerError as error:
            message = f"its definitions and objects can't be read, so links weren't checked: {error.what}"
            self._findings.append(Finding.error(Topic.DEFINITIONS, error.where or where, message))
            return None
        # All sources were read: what none of them defines is reported by itself.
        self._findings += [self._finding(each) for each in found.problems if not each.may_be_elsewhere]
        if not found.plan.links:
            message = "no definition matches anything that exists downstream: there are no links"
            self._findings.append(Finding.note(Topic.DEFINITIONS, found.reading.broker, message))
        return found

    def _finding(self, problem: Problem) -> Finding:
        level = FindingLevel.ERROR if problem.severity is Severity.ERROR else FindingLevel.WARNING
        if problem in self._configuration.warnings and problem.severity is Severity.WARNING:
            level = FindingLevel.NOTE  # `validate` shows it and accepts the file
        return Finding(level, Topic.DEFINITIONS, str(problem.place), problem.message)

    async def _ask(
        self, context: CheckContext, accounts: list[AccountNeeds], found: PlanInputs | None, attempts: Sequence[Attempt]
    ) -> None:
        sources: list[AsyncIterator[Finding]] = [
            judge_permissions(accounts, context, attempts),
            judge_topic_permissions(context),
            judge_alarms(context),
            judge_event_exchange(context),
            judge_alternate_exchanges(context),
            judge_queues(context, {} if found is None else found.bindings),
            judge_protocols(context),
            *(_judge_clock_of(api) for api in context.apis.all),
        ]
        if context.apis.own is not None:
            reads = self._configuration.settings.sources.management
            if self._configuration.settings.standby is None:  # which needs them in any case
                sources.append(judge_tags(context.apis.own, reads_definitions=reads))
        else:
            lacking = "permissions, policies, alarms, the clock and the native plugins' links"
            message = f"{lacking} can't be judged without the HTTP API"
            self._findings.append(Finding.note(Topic.DEFINITIONS, "downstream", message, "set downstream.management"))
        for findings in await asyncio.gather(*(in_time(each, ASKING) for each in sources)):
            self._findings += findings
        for api in context.apis.all:
            for question, why in sorted(api.failures.items()):
                if not question.user:  # otherwise it is reported with the user
                    message = f"{question.about} can't be read, so what depends on it wasn't judged: {why.what}"
                    self._findings.append(Finding.note(Topic.DEFINITIONS, api.where, message))
            if api.failures and api in context.apis.given.values():
                message = f"asked for with --api, but it fails: {next(iter(api.failures.values())).what}"
                self._findings.append(Finding.warning(Topic.DEFINITIONS, api.where, message))


async def _all(findings: AsyncIterator[Finding]) -> list[Finding]:
    return [each async for each in findings]


async def in_time(findings: AsyncIterator[Finding], seconds: float) -> list[Finding]:
    """Those that were found until then, and a warning if there could be more."""
    found: list[Finding] = []
    try:
        async with asyncio.timeout(seconds):
            async for each in findings:
                found.append(each)  # noqa: PERF401 - those before the time is over are kept
    except TimeoutError:
        message = f"not everything was judged: the brokers took longer than {seconds:g} s to answer"
        found.append(Finding.warning(Topic.DEFINITIONS, "brokers", message, "see which HTTP API is slow"))
    return found


async def _judge_clock_of(api: BrokerApi) -> AsyncIterator[Finding]:
    difference = await api.clock_difference()
    if difference is not None:
        for each in judge_clock(api.where, difference):
            yield each


def _is_about_missing(vhosts: frozenset[str], each: Attempt) -> bool:
    """True if the attempt failed as one of these vhosts isn't there downstream."""
    is_absent = each.error is not None and each.error.failure.kind is FailureKind.NO_VHOST
    return is_absent and each.endpoint.where == DOWNSTREAM and each.endpoint.default_vhost in vhosts


async def _judge_unreachable(
    attempts: Sequence[Attempt], accounts: Sequence[AccountNeeds], context: CheckContext
) -> AsyncIterator[Finding]:
    """An address that fails is an error where no other one of the same broker works."""
    for each in attempts:
        if each.error is None:
            continue
        judged = Finding.warning if each.endpoint in context.brokers else Finding.error
        kind = each.error.failure.kind
        topic = Topic.TLS if kind is FailureKind.TLS else Topic.CONNECTION
        vhost = each.uri.vhost(each.endpoint.default_vhost)
        place = each.endpoint, vhost, each.uri.login[0]
        account = next((one for one in accounts if (one.endpoint, one.vhost, one.user) == place), None)
        if account is not None and kind is FailureKind.NO_VHOST:
            fix = f"rabbitmqctl add_vhost {quote(vhost)} && {account.command(Grant())}"
        else:
            fix = await command_to_grant(account if kind is FailureKind.PERMISSION else None, context.apis)
        labels = tuple(link.label for link in context.links if each.endpoint in (link.source, link.destination))
        yield judged(topic, each.where, each.error.what, fix, labels)


def _judge_pairs(context: CheckContext) -> Iterator[Finding]:
    for ends in dict.fromkeys((each.source, each.destination) for each in context.links):
        source, destination = map(context.broker, ends)
        if source is not None and destination is not None:
            yield from judge_pair(source, destination, has_quarantine=not ends[0].is_amqp10)


def stopped_links(context: CheckContext, attempts: Iterable[Attempt]) -> list[LinkEnds]:
    """The links that would not run, without those that fail as all addresses of one of their brokers do, which is
    reported with the addresses. Of several addresses together it depends on all of them whether a failure is permanent,
    so that isn't compared."""
    reported = {
        (each.endpoint, replace(each.error.failure, is_permanent=False))
        for each in attempts
        if each.error is not None and each.endpoint not in context.brokers
    }

    def is_reported(each: LinkEnds) -> bool:
        failure = each.planned.failure
        facts = None if failure is None else replace(failure, is_permanent=False)
        return facts is not None and any((end, facts) in reported for end in (each.source, each.destination))

    return [each for each in context.links if each.planned.outlook is not Outlook.RUN and not is_reported(each)]


async def _judge_links(
    context: CheckContext, found: PlanInputs, attempts: Sequence[Attempt], accounts: Sequence[AccountNeeds]
) -> AsyncIterator[Finding]:
    """The links that would not run, by reason."""
    stopped = sorted(stopped_links(context, attempts), key=lambda each: (each.planned.outlook, each.planned.reason))
    for (outlook, reason), several in groupby(stopped, key=lambda each: (each.planned.outlook, each.planned.reason)):
        of_reason = list(several)
        labels = tuple(each.label for each in of_reason)
        where = of_reason[0].planned.broker
        if outlook is not Outlook.STANDBY:
            refused = of_reason[0].planned.failure
            is_denied = refused is not None and refused.kind is FailureKind.PERMISSION
            who = (refused.user, refused.vhost) if refused is not None and is_denied else None
            account = next((one for one in accounts if (one.user, one.vhost) == who), None)
            topic = Topic.PERMISSIONS if is_denied else Topic.LINK
            yield Finding.error(topic, where, reason, await command_to_grant(account, context.apis), labels)
        elif any(native_link(each.link) in found.reading.native_links for each in of_reason):
            fix = "disable the plugin on the downstream, or remove the definition from one of the two"
            yield Finding.warning(Topic.PLUGIN, found.reading.broker, reason, fix, labels)
        else:
            yield Finding.note(Topic.PLUGIN, where, reason, "", labels)
