"""What `plan` says of links that end: the most dangerous lines that it has."""

from __future__ import annotations

from dataclasses import replace

from agent.cli.plan import ended_line
from agent.core.links.plan import RunningLink

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
