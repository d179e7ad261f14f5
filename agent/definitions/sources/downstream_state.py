"""The objects of a vhost, from a broker's HTTP API or an export → the core's model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.core import fields
from agent.core.fields import UNREAD, Field, Table, UnusableError
from agent.core.model import Binding, Exchange, Policy, Queue, QueueType, VhostState
from agent.core.rules.hops import BOUND_FROM
from agent.core.text import listed
from agent.definitions.document.findings import problem_at, quoted
from agent.errors import Place, Problem

JsonObjects = Iterable[Mapping[str, Any]]


@dataclass(slots=True)
class Unusable:
    """The objects of one vhost that AMQP can't represent, as the agent would have to declare them upstream."""

    vhost: str
    objects: list[str] = field(default_factory=list)

    def note(self, what: str, name: str, reason: str | None) -> None:
        if reason is not None:
            self.objects.append(f"{what} {quoted(name)} (it {reason})")

    def problems(self, source: str) -> tuple[Problem, ...]:
        if not self.objects:
            return ()
        message = (
            f"vhost {quoted(self.vhost)} holds what can't be federated: {listed(self.objects)}; "
            "declare it again with other arguments"
        )
        return (problem_at(Place(source), message),)


def vhost_state(exchanges: JsonObjects, queues: JsonObjects) -> VhostState:
    return VhostState(
        exchanges={name: read_exchange(name, answer, {}) for name, answer in named(exchanges)},
        queues={name: read_queue(name, answer, {}) for name, answer in named(queues)},
    )


def bindings_by_source(bindings: JsonObjects) -> dict[str, tuple[Binding, ...]]:
    """Every exchange's bindings, without the implicit ones of the default exchange, and without those that AMQP can't
    represent."""
    found: dict[str, list[Binding]] = {}
    for answer in bindings:
        read = binding(answer)
        if isinstance(read, Binding):
            found.setdefault(source_of(answer), []).append(read)
    return {source: tuple(of_source) for source, of_source in found.items() if source}


def source_of(answer: Mapping[str, Any]) -> str:
    return _text(answer, "source")


def binding(answer: Mapping[str, Any]) -> Binding | UnusableError:
    table, reason = _usable_arguments(answer)
    if reason is not None:
        return UnusableError(reason)
    return Binding(
        routing_key=_text(answer, "routing_key"),
        arguments=table,
        destination=_text(answer, "destination"),
        destination_is_exchange=answer.get("destination_type") == "exchange",
    )


def binding_of_event(event: Mapping[str, Any]) -> Binding | None:
    """A binding without arguments, from an event; events show arguments as text in Erlang's syntax."""
    if event.get("arguments"):
        return None
    return Binding(
        routing_key=_text(event, "routing_key"),
        destination=_text(event, "destination_name"),
        destination_is_exchange=event.get("destination_kind") == "exchange",
    )


def arguments(value: object) -> Table:
    """JSON has no AMQP type tags; those of the native plugin are known. Old releases write an empty table as []. Raises
    UnusableError.
    """
    if not isinstance(value, dict):
        return fields.EMPTY
    fields.check_json(value)
    table = fields.ordered(fields.table_from_json(value))
    return tuple((key, _bound_from(item) if key == BOUND_FROM else item) for key, item in table)


def _usable_arguments(answer: Mapping[str, Any]) -> tuple[Table, str | None]:
    """The arguments; or none, with the reason."""
    reason = answer.get(UNREAD)
    if reason is not None:
        return fields.EMPTY, str(reason)
    try:
        return arguments(answer.get("arguments")), None
    except UnusableError as error:
        return fields.EMPTY, str(error)


def _bound_from(value: Field) -> Field:
    if value.tag != "A":
        return value
    return fields.array(*(_with_short_hops(entry) for entry in value.value))


def _with_short_hops(entry: Field) -> Field:
    hops = fields.get(entry.value, "hops") if entry.tag == "F" else None
    if hops is None or hops.tag != "l" or not -(2**15) <= hops.value < 2**15:
        return entry
    short = fields.short(hops.value)
    return fields.table(tuple((key, short if key == "hops" else item) for key, item in entry.value))


def named(answers: JsonObjects) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """The default exchange has no name; it is never federated."""
    for answer in answers:
        name = answer.get("name")
        if isinstance(name, str) and name:
            yield name, answer


def read_exchange(name: str, answer: Mapping[str, Any], policies: Mapping[str, Policy]) -> Exchange:
    """`policies` are the vhost's federating ones by name; for each object the broker names the policy in force."""
    table, reason = _usable_arguments(answer)
    return Exchange(
        name=name,
        type=_text(answer, "type"),
        durable=answer.get("durable") is True,
        auto_delete=answer.get("auto_delete") is True,
        internal=answer.get("internal") is True,
        arguments=table,
        policy=policies.get(_text(answer, "policy")),
        unusable=reason,
    )


def read_queue(name: str, answer: Mapping[str, Any], policies: Mapping[str, Policy]) -> Queue:
    table, reason = _usable_arguments(answer)
    return Queue(
        name=name,
        type=_queue_type(answer, table),
        durable=answer.get("durable") is True,
        auto_delete=answer.get("auto_delete") is True,
        exclusive=answer.get("exclusive") is True,
        arguments=table,
        policy=policies.get(_text(answer, "policy")),
        unusable=reason,
    )


def _queue_type(answer: Mapping[str, Any], table: Table) -> QueueType | None:
    """Brokers before 3.8 and exports have it only in the arguments."""
    argument = fields.get(table, "x-queue-type")
    named_type = answer.get("type") or (argument.value if argument is not None else QueueType.CLASSIC)
    return QueueType(named_type) if isinstance(named_type, str) and named_type in set(QueueType) else None


def _text(answer: Mapping[str, Any], key: str) -> str:
    value = answer.get(key)
    return value if isinstance(value, str) else ""
