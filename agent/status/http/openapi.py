"""The API's description, OpenAPI 3.1. The schemas come from the types of the answers; answers are tested against it."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, TypedDict

from agent.core.links.lifecycle import Status
from agent.core.rules.names import LETTERS
from agent.core.status.acknowledgements import LONGEST
from agent.status.causes import CausesView, CauseView
from agent.status.changes import TransitionView
from agent.status.fleet import AgentSummary, FleetView
from agent.status.history import Range
from agent.status.json_schema import Count, Json, LinkId, object_schema, schema_of
from agent.status.moves import MoveView
from agent.status.native import NativeLink, NativeShovel
from agent.status.standby import StandbyInShort, StandbyQueueView, StandbyView
from agent.status.views import AgentOverview, LinkView, LinkWithHistory


class BindingsView(TypedDict):
    cluster: str | None
    vhost: str
    queue: str
    letter: Annotated[str, ("enum", tuple(LETTERS))]
    arguments: Annotated[object, ("type", "array")]
    notices_deletions: bool
    noticing_is_refused: bool
    bindings: list[Annotated[object, ("type", "array")]]


class LinkBindingsView(TypedDict):
    status: Status
    uris: list[str]
    known: Annotated[object, ("oneOf", ({"type": "null"}, object_schema(BindingsView, {})))]


class Error(TypedDict):
    error: str


class Ok(TypedDict):
    status: Literal["ok"]


class Forgotten(TypedDict):
    id: LinkId


NAMED: Final = {
    CauseView: "Cause",
    CausesView: "Causes",
    Error: "Error",
    FleetView: "Fleet",
    AgentSummary: "Summary",
    Ok: "Ok",
    AgentOverview: "Overview",
    LinkView: "Link",
    LinkBindingsView: "LinkBindings",
    LinkWithHistory: "LinkWithHistory",
    TransitionView: "Transition",
    StandbyQueueView: "StandbyQueue",
    StandbyView: "Standby",
    StandbyInShort: "StandbyInShort",
    MoveView: "Move",
    NativeLink: "NativeLink",
    NativeShovel: "NativeShovel",
}


def document(version: str) -> Json:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "federation-agent",
            "version": version,
            "description": "The links of one agent: their definitions, their state, and actions on them.",
        },
        "security": [{}, {"token": []}],
        "paths": PATHS,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {name: object_schema(of, NAMED) for of, name in NAMED.items()},
            "responses": RESPONSES,
            "parameters": PARAMETERS,
        },
    }


def _json(description: str, of: object) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema_of(of, NAMED)}}}


def _plain(content_type: str, description: str) -> Json:
    return {"description": description, "content": {content_type: {"schema": {"type": "string"}}}}


def _ref(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}


def _parameter(name: str, where: str, schema: Json, description: str) -> Json:
    found = {"name": name, "in": where, "schema": schema, "description": description}
    return found | {"required": True} if where == "path" else found


_TEXT: Final[Json] = {"type": "string"}
_NAME: Final[Json] = {"type": "string", "minLength": 1}
_ID: Final = schema_of(LinkId, {})
PARAMETERS: Final[Json] = {
    "Id": _parameter("id", "path", _ID, "A link's id."),
    "CauseId": _parameter("id", "path", _ID, "A cause's id."),
    "Vhost": _parameter("vhost", "path", _NAME, "A vhost, percent-encoded: %2F is the vhost /."),
    "Node": _parameter("node", "path", _NAME, "Part of the native route; any value is accepted."),
    "Name": _parameter("name", "path", _NAME, "The name of a shovel."),
    "Range": _parameter("range", "query", {"enum": list(Range)}, "How far its history goes back; 15m by default."),
    "After": _parameter("after", "query", schema_of(Count, {}), "Only transitions with a greater `seq`."),
    "OfVhost": _parameter("vhost", "query", _TEXT, "Only links of this vhost."),
    "AccessToken": _parameter(
        "access_token", "query", _TEXT, "The token, for browsers: an EventSource can't send headers."
    ),
}
RESPONSES: Final[Json] = {
    "Refused": _json("Refused; the error says why.", Error),
    "NoCause": _json("There is no such cause.", Error),
    "NoLink": _json("There is no such link.", Error),
    "NoStandby": _json("The configuration has no section `standby`.", Error),
    "NoVhost": _json("There is no such vhost.", Error),
}
_REFUSED: Final = {status: _ref("responses", "Refused") for status in ("400", "401", "403")}  # by the guard
_NO_CAUSE: Final = {"404": _ref("responses", "NoCause")}
_NO_LINK: Final = {"404": _ref("responses", "NoLink")}
_NO_VHOST: Final = {"404": _ref("responses", "NoVhost")}
_NO_STANDBY: Final = {"404": _ref("responses", "NoStandby")}
_ASKED: Final = {"204": {"description": "Asked for."}}


def _ok(description: str, of: object) -> Json:
    return {"200": _json(description, of)}


_YES: Final = _ok("Yes.", Ok)
_LINK: Final = (
    _ok("The link after the action.", LinkView)
    | _NO_LINK
    | {"409": _json("The link is no longer defined and is being removed.", Error)}
)
_CAUSE: Final = _ok("The cause then; null if it is over.", CauseView | None) | _NO_CAUSE
_NATIVE_LINKS: Final = _ok("Links in the plugin's format.", list[NativeLink])
_NATIVE_SHOVELS: Final = _ok("Shovels in the plugin's format.", list[NativeShovel])


def _body(description: str, **properties: Json) -> Json:
    schema = {"type": "object", "properties": properties}
    return {"requestBody": {"description": description, "content": {"application/json": {"schema": schema}}}}


def _operation(
    route: str, name: str, summary: str, answers: Json, *, query: str | None = None, body: Json | None = None
) -> tuple[str, str, Json]:
    """The description of one operation. `route` is a method and a path, which names its parameters. The guard may
    refuse every operation."""
    method, path = route.split(" ")
    parameters = [each.capitalize() for each in re.findall(r"{(\w+)}", path)] + ([query] if query else [])
    if path.startswith("/api/causes/"):
        parameters = ["CauseId"]
    described = {
        "operationId": name,
        "summary": summary,
        "parameters": [_ref("parameters", each) for each in parameters],
        "responses": answers | _REFUSED,
    }
    return path, method.lower(), described | (body or {})


_OPERATIONS: Final = (
    _operation("GET /livez", "live", "Whether the process is alive.", _YES),
    _operation(
        "GET /readyz",
        "ready",
        "Whether definitions were read and links follow them; an upstream that is away doesn't matter.",
        _YES | {"503": _json("Not yet.", Error)},
    ),
    _operation("GET /metrics", "metrics", "Metrics for Prometheus.", {"200": _plain("text/plain", "Text exposition.")}),
    _operation("GET /api/openapi.json", "describe", "This document.", _ok("OpenAPI 3.1.", dict[str, object])),
    _operation("GET /api/overview", "overview", "The agent itself.", _ok("The agent.", AgentOverview)),
    _operation("GET /api/causes", "causes", "What is wrong, most important first.", _ok("Causes.", CausesView)),
    _operation(
        "POST /api/causes/{id}/ack",
        "acknowledgeCause",
        "Somebody knows of it: it comes behind others until it ends or grows, or for so many seconds.",
        _CAUSE,
        body=_body(
            "Who knows of it, why, and for how long.",
            by=_TEXT,
            reason=_TEXT,
            **{"for": {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST}},
        ),
    ),
    _operation("DELETE /api/causes/{id}/ack", "takeBackAcknowledgement", "Nobody has acknowledged it.", _CAUSE),
    _operation(
        "GET /api/summary",
        "summary",
        "This agent in short: the verdict, and its links by upstream cluster.",
        _ok("The summary.", AgentSummary),
    ),
    _operation(
        "GET /api/fleet",
        "fleet",
        "The summaries of this agent and of those in `agent.peers`.",
        _ok("The agents.", FleetView),
    ),
    _operation(
        "GET /api/standby",
        "standby",
        "Whether the standby is in step with its source, and what a promotion now would mean.",
        _ok("The standby.", StandbyView) | _NO_STANDBY,
    ),
    _operation("GET /api/links", "listLinks", "All links.", _ok("Links.", list[LinkView]), query="OfVhost"),
    _operation(
        "GET /api/links/{id}",
        "showLink",
        "One link with its recent history.",
        _ok("The link.", LinkWithHistory) | _NO_LINK,
        query="Range",
    ),
    _operation(
        "GET /api/links/{id}/bindings",
        "showBindings",
        "What one link has bound upstream, as routing keys and arguments with their AMQP tags.",
        _ok("The bindings; null where they aren't known.", LinkBindingsView) | _NO_LINK,
    ),
    _operation("POST /api/links/{id}/restart", "restartLink", "Connects anew; what stands upstream stays.", _LINK),
    _operation(
        "POST /api/links/{id}/pause",
        "pauseLink",
        "Takes no more messages until it is resumed; they wait upstream.",
        _LINK,
        body=_body("Who pauses it and why.", by=_TEXT, reason=_TEXT),
    ),
    _operation("POST /api/links/{id}/resume", "resumeLink", "Goes on after a pause.", _LINK),
    _operation(
        "POST /api/links/{id}/forget",
        "forgetLink",
        "A link whose exchange or queue was deleted is no cause of trouble any more.",
        _ok("It is forgotten.", Forgotten) | _NO_LINK,
    ),
    _operation(
        "GET /api/events",
        "events",
        "Server-sent events: `links` with all of them first, then `link`, `gone` and `samples`.",
        {"200": _plain("text/event-stream", "A stream of events."), "503": _json("Too many readers.", Error)},
        query="AccessToken",
    ),
    _operation(
        "GET /api/transitions",
        "transitions",
        "The last changes of status of all links, oldest first; at most 2,000.",
        _ok("Changes.", list[TransitionView]),
        query="After",
    ),
    _operation("GET /api/federation-links", "nativeLinks", "All links.", _NATIVE_LINKS),
    _operation(
        "GET /api/federation-links/state/down",
        "nativeLinksDown",
        "Links that are neither running nor starting.",
        _NATIVE_LINKS,
    ),
    _operation(
        "GET /api/federation-links/{vhost}", "nativeLinksOfVhost", "The links of a vhost.", _NATIVE_LINKS | _NO_VHOST
    ),
    _operation(
        "GET /api/federation-links/{vhost}/state/down",
        "nativeLinksOfVhostDown",
        "Links of a vhost that are neither running nor starting.",
        _NATIVE_LINKS | _NO_VHOST,
    ),
    _operation(
        "DELETE /api/federation-links/vhost/{vhost}/{id}/{node}/restart",
        "nativeRestart",
        "Restarts a link.",
        _ASKED | _NO_LINK,
    ),
    _operation("GET /api/shovels", "nativeShovels", "All shovels.", _NATIVE_SHOVELS),
    _operation(
        "GET /api/shovels/{vhost}", "nativeShovelsOfVhost", "The shovels of a vhost.", _NATIVE_SHOVELS | _NO_VHOST
    ),
    _operation(
        "DELETE /api/shovels/vhost/{vhost}/{name}",
        "nativeDeleteShovel",
        "Deletes the parameter that defines a shovel.",
        {
            "204": {"description": "The parameter is deleted, and the shovel ends."},
            "409": _json("No parameter defines it; the error says what does.", Error),
            "503": _json("The broker refuses it or doesn't answer.", Error),
        }
        | _NO_LINK,
    ),
    _operation(
        "DELETE /api/shovels/vhost/{vhost}/{name}/restart",
        "nativeRestartOfShovel",
        "Restarts a shovel.",
        _ASKED | _NO_LINK,
    ),
)
PATHS: Final[Json] = {
    path: {method: operation for at, method, operation in _OPERATIONS if at == path} for path, _, _ in _OPERATIONS
}
