"""Which ends have other passwords and nothing else."""

from __future__ import annotations

from agent.core.addresses.uri import parse
from agent.links.brokers import renewed_ends
from agent.links.ends import End, Ends

HERE = End("downstream", (parse("amqp://agent:p@here"),))


def end(*uris: str, where: str = "upstream origin") -> End:
    return End(where, tuple(parse(uri) for uri in uris))


FIRST, SECOND = end("amqp://agent:first@there"), end("amqp://agent:second@there")


def test_an_end_with_another_password_is_renewed_for_all_its_links() -> None:
    assert renewed_ends([(Ends(FIRST, HERE), Ends(SECOND, HERE))] * 3) == {FIRST: SECOND}


def test_one_that_only_some_links_leave_stays_with_the_others() -> None:
    """A shovel of another tenant that was defined with the same password, for example."""
    assert renewed_ends([(Ends(FIRST, HERE), Ends(SECOND, HERE)), (Ends(FIRST, HERE), Ends(FIRST, HERE))]) == {}
    third = end("amqp://agent:third@there")
    assert renewed_ends([(Ends(FIRST, HERE), Ends(SECOND, HERE)), (Ends(FIRST, HERE), Ends(third, HERE))]) == {}


def test_another_user_or_address_is_another_end() -> None:
    for now in ("amqp://other:first@there", "amqp://agent:second@elsewhere", "amqp://there"):
        assert renewed_ends([(Ends(FIRST, HERE), Ends(end(now), HERE))]) == {}
    two = end("amqp://agent:second@there", "amqp://agent:second@there2")
    assert renewed_ends([(Ends(FIRST, HERE), Ends(two, HERE))]) == {}
