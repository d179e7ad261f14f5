"""The section `standby`: what it needs, and the same the other way."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import yaml

from agent.definitions.sources.reversed_standby import reversed_standby
from agent.errors import UsageError
from tests.unit.definitions.documents import complaints, load

HERE: Final = "downstream: {uri: 'amqp://a:${env:A}@here', management: 'http://a:${env:A}@here:15672'}\n"
THERE: Final = "upstreams: {origin: {uri: 'amqp://b:${env:B}@there', management: 'http://b:${env:B}@there:15672'}}\n"
STANDBY: Final = "standby: {of: origin, vhosts: {shop: {queues: '^q'}}, keep: 2h}\n"
SECRETS: Final = {"A": "hidden-a", "B": "hidden-b"}


def test_a_standby(tmp_path: Path) -> None:
    found = load(tmp_path, HERE + THERE + STANDBY, environment=SECRETS).settings.standby
    assert found is not None
    assert (found.of, found.keep, found.trim_after, found.consumer_timeout) == ("origin", 7200.0, 1800.0, None)
    off = load(tmp_path, HERE + THERE + STANDBY.replace("keep: 2h", "trim: off"), environment=SECRETS)
    assert off.settings.standby is not None
    assert (off.settings.standby.keep, off.settings.standby.trim_after) == (3600.0, None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HERE.replace("management", "x-m") + THERE + STANDBY, "unknown key 'x-m'"),
        ("downstream: {uri: amqp://here}\n" + THERE + STANDBY, "needs downstream.management"),
        (HERE + STANDBY, "upstream 'origin' isn't defined in vhost 'shop' or '/'"),
        (HERE + "upstreams: {origin: {uri: amqp://there}}\n" + STANDBY, "needs 'management'"),
        (HERE + THERE.replace("origin", "origni") + STANDBY, "'shop' or '/'; did you mean 'origni'?"),
        (HERE + THERE.replace("@there'", "@there/other'") + STANDBY, "leads to another vhost than 'shop'"),
        (HERE + THERE + STANDBY.replace("keep: 2h", "trim: {after: 299}"), "trim.after: at least 5 minutes"),
        (HERE + THERE + STANDBY.replace("2h", "49m"), "keep: copies go by it before"),
        (HERE + THERE + STANDBY.replace("2h", "2h, trim: {after: 101m}"), "keep: copies go by it before"),
        (HERE + THERE + "standby: {of: origin}\n", "standby needs the key 'vhosts'"),
        (HERE + THERE + "standby: {of: origin, vhosts: {v: }, trim: {afer: 1}}\n", "did you mean 'after'?"),
        (HERE + THERE + "standby: {of: origin, vhosts: {v: {queues: '('}}}\n", "not a regular expression"),
    ],
)
def test_what_is_wrong_with_it(tmp_path: Path, text: str, says: str) -> None:
    if says:
        assert any(says in each for each in complaints(tmp_path, text, environment=SECRETS))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("expires: 3600000", "expires"),
        ("message-ttl: 1000, ack-mode: no-ack", "ack-mode, message-ttl"),
        ("ack-mode: on-confirm", None),
    ],
)
def test_settings_by_which_its_links_may_lose_copies(tmp_path: Path, settings: str, named: str | None) -> None:
    text = HERE + THERE.replace("}}\n", f", {settings}}}}}\n") + STANDBY
    warnings = [str(each) for each in load(tmp_path, text, environment=SECRETS).warnings]
    assert [f"has {named}: so its links may lose copies" in each for each in warnings] == (
        [] if named is None else [True]
    )


def test_the_other_way_twice_is_the_same_and_holds_no_secret(tmp_path: Path) -> None:
    configuration = load(tmp_path, HERE + THERE + STANDBY, environment=SECRETS)
    text = reversed_standby(configuration)
    assert "hidden" not in text
    found = yaml.safe_load(text)
    assert found["downstream"]["uri"] == "amqp://b:${env:B}@there"
    assert found["upstreams"]["origin"]["management"] == "http://a:${env:A}@here:15672"
    again = reversed_standby(load(tmp_path, text, environment=SECRETS))
    assert yaml.safe_load(again) == yaml.safe_load(HERE + THERE + STANDBY)


@pytest.mark.parametrize(
    ("uri", "reversed_uri"),
    [
        ("amqp://a:${env:A}@here/%2F", "amqp://a:${env:A}@here"),
        ("amqps://a:${file:/a/b}@here/shop?heartbeat=5", "amqps://a:${file:/a/b}@here?heartbeat=5"),
        ("amqp://here?cacertfile=/a/b", "amqp://here?cacertfile=/a/b"),
        (["amqp://one/", "amqp://other/shop"], ["amqp://one", "amqp://other"]),
    ],
)
def test_the_vhost_of_a_downstream_is_none_of_an_upstream(tmp_path: Path, uri: object, reversed_uri: object) -> None:
    (tmp_path / "b").write_text("hidden")
    downstream = {"uri": uri, "management": "http://a:${env:A}@here:15672"}
    text = yaml.safe_dump({"downstream": downstream}).replace("/a/b", str(tmp_path / "b"))
    found = yaml.safe_load(reversed_standby(load(tmp_path, text + THERE + STANDBY, environment=SECRETS)))
    shown = yaml.safe_dump(found["upstreams"]["origin"]["uri"]).replace(str(tmp_path / "b"), "/a/b")
    assert yaml.safe_load(shown) == reversed_uri


def test_what_cannot_be_reversed(tmp_path: Path) -> None:
    for text, says in (
        (HERE + THERE, "has no section 'standby'"),
        (HERE + THERE.replace("b:${env:B}@there:15672", "there:15672") + STANDBY, "a login of its own"),
        (HERE + THERE.replace("uri: 'amqp://b:${env:B}@there'", "host: there") + STANDBY, "with 'uri'"),
        (HERE.replace("}\n", ", ssl-options: {cacertfile: ca.pem}}\n") + THERE + STANDBY, "its own TLS settings"),
    ):
        with pytest.raises(UsageError, match=says):
            reversed_standby(load(tmp_path, text, environment=SECRETS))


def test_a_vhost_of_its_own_upstream(tmp_path: Path) -> None:
    own = "vhosts: {shop: {upstreams: {origin: {uri: amqp://there/shop, management: 'http://x:y@there:15672'}}}}\n"
    found = load(tmp_path, HERE + own + STANDBY, environment=SECRETS)
    assert found.settings.standby is not None
    links = found.settings.standby.links(found.definitions)
    assert links.of("shop").upstreams == {}


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("upstreams: {other: {uri: amqp://other/shop}}", "upstream 'other'"),
        ("policies: {p: {pattern: ^f, definition: {federation-upstream-set: all}}}", "policy 'p'"),
        (
            "upstream-sets: {s: [{upstream: origin}]}, upstreams: {origin: {uri: amqp://there/shop, management: 'http://x:y@there:15672'}}",
            "upstream set 's'",
        ),
        ("exchanges: {x: {type: topic, upstream-set: all}}", "exchange 'x'"),
    ],
)
def test_nothing_else_federates_in_its_vhosts(tmp_path: Path, more: str, named: str) -> None:
    text = HERE + THERE + f"vhosts: {{shop: {{{more}}}}}\n"
    [complaint] = complaints(tmp_path, text + STANDBY, environment=SECRETS)
    assert "vhost 'shop' is federated by the standby alone; move to another vhost" in complaint
    assert named in complaint
    load(tmp_path, text + STANDBY.replace("shop", "store"), environment=SECRETS)
