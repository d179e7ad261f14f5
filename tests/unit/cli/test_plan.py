"""What `plan` says of links that end: the most dangerous lines that it has."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from agent.cli.plan import _settings_as_json, ended_line
from agent.core import fields
from agent.core.links.plan import RunningLink
from agent.core.links.read_limits import RateLimit
from tests.unit.core.some_links import queue_link, shovel_link

ENDING = RunningLink("f9b8b831", "exchange", "shop", "orders", "dc1", 1_600, is_consuming=True, is_paused=False)
ENDS = "\x1b[31mends\x1b[0m"


def test_a_link_that_ends_is_named_with_the_messages_that_go_with_it() -> None:
    named = f"link f9b8b831: exchange 'orders' in vhost 'shop' from upstream 'dc1': {ENDS}: "
    goes = "it is no longer defined; what it built upstream, messages included, is removed after agent.cleanup-after"
    assert ended_line(ENDING).startswith(f"{named}1,600 messages wait in its queue; {goes}")
    unknown = ended_line(replace(ENDING, backlog=None))
    assert unknown.startswith(f"{named}how many messages wait in its queue is not known; {goes}")
    shovel = replace(ENDING, kind="shovel", name="drain", upstream="", backlog=0)
    assert ended_line(shovel).endswith(
        f"{ENDS}: no messages wait in its queue; it is no longer defined; its queue stays as it is"
    )


def test_a_link_is_shown_with_its_rules_and_so_is_a_shovel() -> None:
    rules: dict[str, Any] = {
        "set_headers": fields.table_from_json({"site": "eu", "n": [1, None]}),
        "remove_headers": ("a", "b*"),
        "rate_limit": RateLimit(messages=5),
    }
    link, shovel = queue_link(), shovel_link()
    link = replace(link, settings=replace(link.settings, **rules))
    shovel = replace(shovel, shovel=replace(shovel.shovel, settings=replace(shovel.settings, **rules)))
    for each in (link, shovel):
        found = json.loads(json.dumps(_settings_as_json(each)))
        assert found["set-headers"] == {"site": "eu", "n": [1, None]}
        assert (found["remove-headers"], found["rate-limit"]) == (["a", "b*"], {"messages": 5, "bytes": None})
