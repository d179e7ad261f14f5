"""The API's description, OpenAPI 3.1; responses are tested against it."""

from __future__ import annotations

from typing import Any, Final

from agent.core.check.permissions import Permission
from agent.core.export_event import Reason
from agent.core.links.lifecycle import Level, Status
from agent.core.model import LinkKind
from agent.core.rules.names import LETTERS
from agent.core.status.acknowledgements import LONGEST
from agent.core.status.advice import CAUSES
from agent.core.status.causes import SIDES
from agent.errors import FailureKind
from agent.status import native
from agent.status.history import Range

Json = dict[str, Any]

TEXT: Final[Json] = {"type": "string"}
TEXT_OR_NONE: Final[Json] = {"type": ["string", "null"]}
COUNT: Final[Json] = {"type": "integer", "minimum": 0}
_REMAINING: Final[Json] = {"anyOf": [{"const": native.UNLIMITED}, COUNT]}
COUNT_OR_NONE: Final[Json] = {"type": ["integer", "null"], "minimum": 0}
SECONDS: Final[Json] = {"type": "number", "minimum": 0}
ACKNOWLEDGED: Final[Json] = {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST}
TIME: Final[Json] = {"type": "string", "format": "date-time"}
TIME_OR_NONE: Final[Json] = {"type": ["string", "null"], "format": "date-time"}
LINK_ID: Final[Json] = {"type": "string", "pattern": "^[0-9a-f]{8}$"}
REASON: Final[Json] = {"type": "string", "enum": [str(reason) for reason in Reason]}
STATUS: Final[Json] = {"type": "string", "enum": [str(status) for status in Status]}


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
            "schemas": SCHEMAS,
            "responses": RESPONSES,
            "parameters": PARAMETERS,
        },
    }


def _object(required: Json, optional: Json | None = None) -> Json:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


def _ref(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}


def _list(schema: Json) -> Json:
    return {"type": "array", "items": schema}


def _json(description: str, schema: Json) -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _operation(name: str, summary: str, answers: Json, *parameters: str, more: Json | None = None) -> Json:
    """The guard may refuse every operation."""
    refusals = {
        "400": _ref("responses", "Refused"),
        "401": _ref("responses", "Refused"),
        "403": _ref("responses", "Refused"),
    }
    return {
        "operationId": name,
        "summary": summary,
        "parameters": [_ref("parameters", each) for each in parameters],
        "responses": {**answers, **refusals},
        **(more or {}),
    }


_COUNTERS: Final[Json] = {
    "forwarded": COUNT,
    "bytes": COUNT,
    "redelivered": COUNT,
    "dropped": COUNT,
    "quarantined": COUNT,
    "returned": COUNT,
    "in_flight": COUNT,
    "backlog": {
        **COUNT_OR_NONE,
        "description": "Messages upstream and in the agent; null while unknown.",
    },
    "backlog_is_exact": {"type": "boolean", "description": "Whether no more than `backlog` messages wait."},
    "oldest_unconfirmed_seconds": SECONDS,
    "lag_seconds": {"type": ["number", "null"], "description": "Seconds that the last probe took; null without any."},
    "last_probe": TIME_OR_NONE,
    "prefetch": COUNT,
    "bindings": COUNT,
    "last_confirm": TIME_OR_NONE,
}
_FAILURE: Final[Json] = {
    "anyOf": [
        _object(
            {
                "kind": {"type": "string", "enum": [str(kind) for kind in FailureKind]},
                "side": TEXT_OR_NONE,
                "broker": TEXT_OR_NONE,
                "user": TEXT_OR_NONE,
                "vhost": TEXT_OR_NONE,
                "object": TEXT_OR_NONE,
                "object_type": {"enum": ["exchange", "queue", "topic", "vhost", None]},
                "permission": {"enum": [*(str(each) for each in Permission), None]},
            }
        ),
        {"type": "null"},
    ],
    "description": "The facts of what keeps messages from moving, as far as the broker says them; null where nothing "
    "fails. The object of a topic is its exchange.",
}
_ENDS: Final[Json] = dict.fromkeys(
    ("exchange", "upstream_exchange", "queue", "upstream_queue", "name", "source", "destination", "destination_uri"),
    TEXT,
)
_LINK: Final[Json] = {
    "id": LINK_ID,
    "kind": {"type": "string", "enum": [str(kind) for kind in LinkKind]},
    "vhost": TEXT,
    "upstream": TEXT,
    "upstream_cluster": TEXT_OR_NONE,
    "destination_cluster": TEXT_OR_NONE,
    "uri": TEXT_OR_NONE,
    "policy": TEXT,
    "status": STATUS,
    "error": TEXT_OR_NONE,
    "failure": _FAILURE,
    "since": TIME,
    "owner": TEXT_OR_NONE,
    **_COUNTERS,
    "reconnects": COUNT,
    "reason": REASON,
    "incident": {"type": "boolean", "description": "Messages flowed shortly before its trouble began, and don't now."},
    "backlog_last": {**COUNT_OR_NONE, "description": "As last known; `backlog_last_at` says when."},
    "backlog_last_at": TIME_OR_NONE,
    "paused": {
        "anyOf": [_object({"by": TEXT_OR_NONE, "at": TIME_OR_NONE, "reason": TEXT_OR_NONE}), {"type": "null"}],
        "description": "Who paused it, when and why; null unless it is paused.",
    },
    "rate": {**SECONDS, "description": "Messages in a second, over the last 10 seconds; 0 where it can't publish."},
    "lag_critical": {
        "anyOf": [
            _object({"seconds": {"type": ["number", "null"]}, "messages": COUNT_OR_NONE}),
            {"type": "null"},
        ],
        "description": "How far it may fall behind; null unless `lag-critical` is set.",
    },
    "behind_seconds": {
        "type": ["number", "null"],
        "description": "Estimate of how long a message waits that arrives now; null unless `lag-critical` is a time.",
    },
    "critical_since": {**TIME_OR_NONE, "description": "Since when it has been further behind than `lag-critical`."},
}
_ADVICE: Final[Json] = {
    **TEXT_OR_NONE,
    "description": "What to do, with commands between backticks; null where there is nothing to do.",
}
_WAITING: Final = _object({"messages": COUNT, "is_exact": {"type": "boolean"}})
_HISTORY: Final = _object(
    {
        "transitions": _list(_object({"at": TIME, "status": STATUS, "reason": REASON, "error": TEXT_OR_NONE})),
        "samples": _list(
            _object(
                {
                    "at": TIME,
                    "forwarded": COUNT,
                    "backlog": COUNT_OR_NONE,
                    "oldest_unconfirmed_seconds": SECONDS,
                },
                {"bytes": COUNT, "in_flight": COUNT},
            )
        ),
        "range": {"enum": list(Range)},
        "step_seconds": SECONDS,
    }
)
_COUNTS: Final[Json] = {
    "type": "object",
    "properties": {str(status): COUNT for status in Status},
    "description": "Links by status; of those that there are.",
}
SCHEMAS: Final[Json] = {
    "Cause": _object(
        {
            "id": {**LINK_ID, "description": "The same as long as it lasts and its broker is called the same."},
            "side": {"type": "string", "enum": list(SIDES)},
            "broker": TEXT,
            "trouble": {"type": "string", "enum": [str(kind) for kind in CAUSES]},
            "headline": TEXT,
            "since": TIME,
            "links": _list(LINK_ID),
            "names": _list(TEXT),
            "were_flowing": COUNT,
            "waiting": _WAITING,
            "error": TEXT,
            "failure": _FAILURE,
            "advice": TEXT,
            "acknowledged": {
                "anyOf": [
                    _object({"by": TEXT, "at": TIME, "reason": TEXT, "until": TIME_OR_NONE, "text": TEXT}),
                    {"type": "null"},
                ],
                "description": "Who knows of it, if that is known of all its links.",
            },
        }
    ),
    "Causes": _object(
        {
            "level": {"type": "string", "enum": [str(level) for level in Level]},
            "verdict": TEXT,
            "waiting": _WAITING,
            "causes": _list(_ref("schemas", "Cause")),
        }
    ),
    "Error": _object({"error": TEXT}),
    "Fleet": _object(
        {
            "agents": _list(
                _object(
                    {
                        "url": {**TEXT_OR_NONE, "description": "Of a peer, without its token; null for this agent."},
                        "summary": {
                            "anyOf": [_ref("schemas", "Summary"), {"type": "null"}],
                            "description": "The last one that came.",
                        },
                        "at": {**TIME_OR_NONE, "description": "When it came."},
                        "error": {**TEXT_OR_NONE, "description": "Why there is none of this moment."},
                    }
                )
            )
        }
    ),
    "Summary": _object(
        {
            "agent": TEXT,
            "group": TEXT,
            "cluster": TEXT_OR_NONE,
            "version": TEXT,
            "ready": {"type": "boolean"},
            "unread": TEXT_OR_NONE,
            "now": TEXT,
            "level": {"type": "string", "enum": [str(level) for level in Level]},
            "verdict": TEXT,
            "links": _COUNTS,
            "edges": _list(
                _object(
                    {
                        "upstream": TEXT,
                        "destination": TEXT_OR_NONE,
                        "is_known": {"type": "boolean", "description": "Whether its cluster was reached."},
                        "links": _COUNTS,
                        "rate": SECONDS,
                        "waiting": COUNT,
                        "is_exact": {"type": "boolean"},
                        "oldest_unconfirmed_seconds": SECONDS,
                    }
                )
            ),
            "edges_left_out": COUNT,
        }
    ),
    "Ok": _object({"status": {"const": "ok"}}),
    "Overview": _object(
        {
            "agent": TEXT,
            "group": TEXT,
            "cluster": TEXT_OR_NONE,
            "version": TEXT,
            "ready": {"type": "boolean"},
            "unread": TEXT_OR_NONE,
            "problems": _list(TEXT),
            "notes": _list(TEXT),
            "not_run": _list(TEXT),
            "reload_success": {"type": "boolean"},
            "reloaded": TIME_OR_NONE,
            "now": TIME,
            "links": _object({str(status): COUNT for status in Status}),
            "quarantine": _object(
                {
                    "messages": {
                        **COUNT_OR_NONE,
                        "description": "Messages that wait in the quarantines of these links; null while unknown.",
                    },
                    "is_exact": {"type": "boolean", "description": "Whether no more than `messages` wait."},
                    "unseen": {**COUNT, "description": "Messages put where the agent could not look."},
                    "quarantined": {**COUNT, "description": "Messages put there since the agent started."},
                }
            ),
        }
    ),
    "Link": _object(_LINK, _ENDS),
    "LinkBindings": _object(
        {
            "status": STATUS,
            "uris": _list(TEXT),
            "known": {
                "oneOf": [
                    {"type": "null"},
                    _object(
                        {
                            "cluster": TEXT_OR_NONE,
                            "vhost": TEXT,
                            "queue": TEXT,
                            "letter": {"type": "string", "enum": list(LETTERS)},
                            "arguments": {"type": "array"},
                            "notices_deletions": {"type": "boolean"},
                            "noticing_is_refused": {"type": "boolean"},
                            "bindings": _list({"type": "array"}),
                        }
                    ),
                ]
            },
        }
    ),
    "LinkWithHistory": _object({**_LINK, "advice": _ADVICE, "history": _HISTORY}, _ENDS),
    "Transition": _object(
        {
            "seq": COUNT,
            "at": TIME,
            "link": LINK_ID,
            "kind": {"type": "string", "enum": [str(kind) for kind in LinkKind]},
            "vhost": TEXT,
            "name": TEXT,
            "upstream": TEXT,
            "upstream_cluster": TEXT_OR_NONE,
            "status": {"anyOf": [STATUS, {"type": "null"}], "description": "Null where the link is gone."},
            "previous": {"anyOf": [STATUS, {"type": "null"}], "description": "Null where the link is new."},
            "reason": REASON,
            "error": TEXT_OR_NONE,
        }
    ),
    "NativeLink": _object(
        {
            "node": TEXT,
            "type": {"type": "string", "enum": ["exchange", "queue"]},
            "uri": TEXT,
            "vhost": TEXT,
            "upstream": TEXT,
            "id": LINK_ID,
            "status": {"type": "string", "enum": list(native.LINK_STATES)},
            "timestamp": TEXT,
        },
        {**_ENDS, "error": TEXT},
    ),
    "NativeShovel": _object(
        {
            "node": TEXT,
            "name": TEXT,
            "vhost": TEXT,
            "type": {"const": "dynamic"},
            "state": {"type": "string", "enum": [*native.SHOVEL_STATES, native.BLOCKED]},
            "timestamp": TEXT,
            "src_uri": TEXT,
            "dest_uri": TEXT,
            "src_protocol": {"const": native.PROTOCOL},
            "dest_protocol": {"const": native.PROTOCOL},
            "forwarded": COUNT,
            "remaining": _REMAINING,
            "remaining_unacked": _REMAINING,
            "pending": COUNT,
            "blocked_status": {"enum": ["running", native.BLOCKED]},
        },
        {
            "reason": TEXT,
            **dict.fromkeys(
                ("src_queue", "src_exchange", "src_exchange_key", "dest_queue", "dest_exchange", "dest_exchange_key"),
                TEXT,
            ),
        },
    ),
}
RESPONSES: Final[Json] = {
    "Refused": _json("Refused; the error says why.", _ref("schemas", "Error")),
    "NoCause": _json("There is no such cause.", _ref("schemas", "Error")),
    "NoLink": _json("There is no such link.", _ref("schemas", "Error")),
    "NoVhost": _json("There is no such vhost.", _ref("schemas", "Error")),
}


def _parameter(name: str, where: str, schema: Json, description: str) -> Json:
    found = {"name": name, "in": where, "schema": schema, "description": description}
    return found | {"required": True} if where == "path" else found


_ENCODED: Final = "percent-encoded: %2F is the vhost /"
PARAMETERS: Final[Json] = {
    "Id": _parameter("id", "path", LINK_ID, "A link's id."),
    "CauseId": _parameter("id", "path", LINK_ID, "A cause's id."),
    "Vhost": _parameter("vhost", "path", {**TEXT, "minLength": 1}, f"A vhost, {_ENCODED}."),
    "Node": _parameter("node", "path", {**TEXT, "minLength": 1}, "Part of the native route; any value is accepted."),
    "Name": _parameter("name", "path", {**TEXT, "minLength": 1}, "The name of a shovel."),
    "Range": _parameter("range", "query", {"enum": list(Range)}, "How far its history goes back; 15m by default."),
    "After": _parameter("after", "query", COUNT, "Only transitions with a greater `seq`."),
    "OfVhost": _parameter("vhost", "query", TEXT, "Only links of this vhost."),
    "AccessToken": _parameter(
        "access_token", "query", TEXT, "The token, for browsers: an EventSource can't send headers."
    ),
}
_LINKS: Final = _json("Links.", _list(_ref("schemas", "Link")))
_NATIVE_LINKS: Final = _json("Links in the plugin's format.", _list(_ref("schemas", "NativeLink")))
_SHOVELS: Final = _json("Shovels in the plugin's format.", _list(_ref("schemas", "NativeShovel")))
_OK: Final = _json("Yes.", _ref("schemas", "Ok"))
_NO_LINK: Final = _ref("responses", "NoLink")
_NO_VHOST: Final[Json] = {"404": _ref("responses", "NoVhost")}


def _plain(content_type: str, description: str) -> Json:
    return {"description": description, "content": {content_type: {"schema": TEXT}}}


def _body(description: str, **properties: Json) -> Json:
    schema = {"type": "object", "properties": properties}
    return {"requestBody": {"description": description, "content": {"application/json": {"schema": schema}}}}


def _ack(action: str, summary: str, more: Json | None = None) -> Json:
    cause = {"anyOf": [_ref("schemas", "Cause"), {"type": "null"}]}
    answers = {"200": _json("The cause then; null if it is over.", cause), "404": _ref("responses", "NoCause")}
    return _operation(action, summary, answers, "CauseId", more=more)


def _act(action: str, summary: str, more: Json | None = None) -> Json:
    answers = {
        "200": _json("The link after the action.", _ref("schemas", "Link")),
        "404": _NO_LINK,
        "409": _json("The link is no longer defined and is being removed.", _ref("schemas", "Error")),
    }
    return {"post": _operation(f"{action}Link", summary, answers, "Id", more=more)}


PATHS: Final[Json] = {
    "/livez": {"get": _operation("live", "Whether the process is alive.", {"200": _OK})},
    "/readyz": {
        "get": _operation(
            "ready",
            "Whether definitions were read and links follow them; an upstream that is away doesn't matter.",
            {"200": _OK, "503": _json("Not yet.", _ref("schemas", "Error"))},
        )
    },
    "/metrics": {
        "get": _operation("metrics", "Metrics for Prometheus.", {"200": _plain("text/plain", "Text exposition.")})
    },
    "/api/openapi.json": {
        "get": _operation("describe", "This document.", {"200": _json("OpenAPI 3.1.", {"type": "object"})})
    },
    "/api/overview": {
        "get": _operation("overview", "The agent itself.", {"200": _json("The agent.", _ref("schemas", "Overview"))})
    },
    "/api/causes": {
        "get": _operation(
            "causes", "What is wrong, most important first.", {"200": _json("Causes.", _ref("schemas", "Causes"))}
        )
    },
    "/api/causes/{id}/ack": {
        "post": _ack(
            "acknowledgeCause",
            "Somebody knows of it: it comes behind others until it ends or grows, or for so many seconds.",
            _body("Who knows of it, why, and for how long.", by=TEXT, reason=TEXT, **{"for": ACKNOWLEDGED}),
        ),
        "delete": _ack("takeBackAcknowledgement", "Nobody has acknowledged it."),
    },
    "/api/summary": {
        "get": _operation(
            "summary",
            "This agent in short: the verdict, and its links by upstream cluster.",
            {"200": _json("The summary.", _ref("schemas", "Summary"))},
        )
    },
    "/api/fleet": {
        "get": _operation(
            "fleet",
            "The summaries of this agent and of those in `agent.peers`.",
            {"200": _json("The agents.", _ref("schemas", "Fleet"))},
        )
    },
    "/api/links": {"get": _operation("listLinks", "All links.", {"200": _LINKS}, "OfVhost")},
    "/api/links/{id}": {
        "get": _operation(
            "showLink",
            "One link with its recent history.",
            {"200": _json("The link.", _ref("schemas", "LinkWithHistory")), "404": _NO_LINK},
            "Id",
            "Range",
        )
    },
    "/api/links/{id}/bindings": {
        "get": _operation(
            "showBindings",
            "What one link has bound upstream, as routing keys and arguments with their AMQP tags.",
            {
                "200": _json("The bindings; null where they aren't known.", _ref("schemas", "LinkBindings")),
                "404": _NO_LINK,
            },
            "Id",
        )
    },
    "/api/links/{id}/restart": _act("restart", "Connects anew; what stands upstream stays."),
    "/api/links/{id}/pause": _act(
        "pause",
        "Takes no more messages until it is resumed; they wait upstream.",
        more=_body("Who pauses it and why.", by=TEXT, reason=TEXT),
    ),
    "/api/links/{id}/resume": _act("resume", "Goes on after a pause."),
    "/api/links/{id}/forget": {
        "post": _operation(
            "forgetLink",
            "A link whose exchange or queue was deleted is no cause of trouble any more.",
            {"200": _json("It is forgotten.", _object({"id": LINK_ID})), "404": _NO_LINK},
            "Id",
        )
    },
    "/api/events": {
        "get": _operation(
            "events",
            "Server-sent events: `links` with all of them first, then `link`, `gone` and `samples`.",
            {
                "200": _plain("text/event-stream", "A stream of events."),
                "503": _json("Too many readers.", _ref("schemas", "Error")),
            },
            "AccessToken",
        )
    },
    "/api/transitions": {
        "get": _operation(
            "transitions",
            "The last changes of status of all links, oldest first; at most 2,000.",
            {"200": _json("Changes.", _list(_ref("schemas", "Transition")))},
            "After",
        )
    },
    "/api/federation-links": {"get": _operation("nativeLinks", "All links.", {"200": _NATIVE_LINKS})},
    "/api/federation-links/state/down": {
        "get": _operation("nativeLinksDown", "Links that are neither running nor starting.", {"200": _NATIVE_LINKS})
    },
    "/api/federation-links/{vhost}": {
        "get": _operation("nativeLinksOfVhost", "The links of a vhost.", {"200": _NATIVE_LINKS, **_NO_VHOST}, "Vhost")
    },
    "/api/federation-links/{vhost}/state/down": {
        "get": _operation(
            "nativeLinksOfVhostDown",
            "Links of a vhost that are neither running nor starting.",
            {"200": _NATIVE_LINKS, **_NO_VHOST},
            "Vhost",
        )
    },
    "/api/federation-links/vhost/{vhost}/{id}/{node}/restart": {
        "delete": _operation(
            "nativeRestart",
            "Restarts a link.",
            {"204": {"description": "Asked for."}, "404": _NO_LINK},
            "Vhost",
            "Id",
            "Node",
        )
    },
    "/api/shovels": {"get": _operation("nativeShovels", "All shovels.", {"200": _SHOVELS})},
    "/api/shovels/{vhost}": {
        "get": _operation("nativeShovelsOfVhost", "The shovels of a vhost.", {"200": _SHOVELS, **_NO_VHOST}, "Vhost")
    },
    "/api/shovels/vhost/{vhost}/{name}": {
        "delete": _operation(
            "nativeDeleteShovel",
            "Deletes the parameter that defines a shovel.",
            {
                "204": {"description": "The parameter is deleted, and the shovel ends."},
                "404": _NO_LINK,
                "409": _json("No parameter defines it; the error says what does.", _ref("schemas", "Error")),
                "503": _json("The broker refuses it or doesn't answer.", _ref("schemas", "Error")),
            },
            "Vhost",
            "Name",
        )
    },
    "/api/shovels/vhost/{vhost}/{name}/restart": {
        "delete": _operation(
            "nativeRestartOfShovel",
            "Restarts a shovel.",
            {"204": {"description": "Asked for."}, "404": _NO_LINK},
            "Vhost",
            "Name",
        )
    },
}
