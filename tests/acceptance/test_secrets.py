"""A secret stands in every place that takes one, things go wrong around it, and no command says it."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.command import Done, federation_agent
from tests.lab.node import Node
from tests.lab.proxy import Proxy

SECRET = "s3ntinel"
FORMS = (SECRET, base64.b64encode(f"guest:{SECRET}".encode()).decode().rstrip("="))
WAYS = WRITTEN, BY_ENV, BY_FILE = SECRET, "${env:SECRET}", "${file:secret}"
"""In which a configuration gives it."""


def everywhere(secret: str, *, port: int = 1) -> dict[str, Any]:
    """A valid configuration with the secret wherever one can be; nothing answers there."""
    at = f"guest:{secret}@127.0.0.1:{port}"
    options = {"password": secret, "certfile": "secret", "keyfile": "secret"}
    return {
        "agent": {"http": {"token": secret}},
        "downstream": {"uri": f"amqp://{at}", "management": f"http://{at}"},
        "upstreams": {
            "plain": {"uri": f"amqp://{at}"},
            "several": {"uri": [f"amqp://{at}/a", f"amqp://{at}/b"]},
            "tls": {"uri": f"amqps://{at}?password={secret}&certfile=secret&keyfile=secret&cacertfile=secret"},
            "parts": {"host": "127.0.0.1", "port": port, "username": "guest", "password": secret},
            "tls-parts": {"host": "h", "protocol": "amqps", "password": secret, "ssl-options": options},
        },
        "exchanges": {"x": {"type": "topic", "upstream-set": "all"}},
        "shovels": {"s": {"src-uri": f"amqp://{at}", "src-queue": "q", "dest-uri": f"amqp://{at}"}},
    }


def run(folder: Path, document: object, *arguments: str) -> Done:
    (folder / "secret").write_text(f"{SECRET}\n")
    (folder / "agent.yaml").write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    done = federation_agent(*arguments, "-c", "agent.yaml", cwd=folder, SECRET=SECRET)
    for form in FORMS:
        assert form not in done.out + done.err
    assert "Traceback" not in done.err
    return done


def test_a_good_file(tmp_path: Path) -> None:
    for secret, more in zip(WAYS, ((), ("--format", "json"), ()), strict=True):
        assert run(tmp_path, everywhere(secret), "validate", *more).status == 0


@pytest.mark.parametrize(("secret", "command"), [(WRITTEN, "validate"), (BY_ENV, "plan")])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("token:", "tokn:"),
        ("password:", "pasword:"),
        ("uri:", "url:"),
        ("amqp://guest:", "amqp//guest:"),
        ("amqp://guest:", "http://guest:"),
        ("http://guest:", "ftp://guest:"),
        ("@127.0.0.1", "@@127.0.0.1%"),
        (":1", ":99999"),
        ("uri: ", "uri: ["),
        ("password: ", "password: {"),
        ("password: ", "password: !secret "),
        ("password: ", "password: *"),
        ("password: ", "prefetch-count: "),
        ("host: ", "host: guest:SECRET@"),
        ("upstream-set: all", "upstream-set: amqp://guest:SECRET@h"),
        ("topic", "amqp://guest:SECRET@h"),
    ],
)  # fmt: skip
def test_a_mistake_beside_it(tmp_path: Path, secret: str, command: str, old: str, new: str) -> None:
    text = yaml.safe_dump(everywhere(secret), width=1000)
    assert old in text
    done = run(tmp_path, text.replace(old, new.replace("SECRET", SECRET)), command)
    assert done.status == 2
    assert done.out + done.err


def test_brokers_that_are_away_or_let_nobody_in(tmp_path: Path, broker: Node) -> None:
    """However a secret is given: the downstream is away, then upstreams refuse the login, then the downstream does."""
    for secret, more in ((WRITTEN, ()), (BY_ENV, ("--format", "json")), (BY_FILE, ())):
        assert run(tmp_path, everywhere(secret), "plan", *more).status == 4

        document = everywhere(secret, port=broker.amqp_port)
        document["downstream"] = {"uri": broker.uri().removesuffix("/%2F"), "management": broker.management_uri()}
        done = run(tmp_path, document, "plan", *more)
        assert done.status == 0
        assert done.out.count("login refused for user 'guest'") >= 4
        assert "keyfile" in done.out or "certfile" in done.out or "cacertfile" in done.out

        at = f"guest:{secret}@127.0.0.1"
        document["downstream"] = {"uri": f"amqp://{at}:{broker.amqp_port}"}
        if secret != BY_ENV:
            document["downstream"] |= {"management": f"http://{at}:{broker.management_port}"}
        done = run(tmp_path, document, "plan")
        assert done.status == 4
        assert "login refused for user 'guest'" in done.err


def test_brokers_own_definitions_that_are_bad(
    tmp_path: Path, native_broker: Node, vhost: str, proxy_to: Callable[[Node], Proxy]
) -> None:
    dead = proxy_to(native_broker)
    dead.refuse()
    with native_broker.admin.temporary_vhost(vhost):
        uri = native_broker.uri(vhost, password=SECRET, port=dead.port)
        native_broker.admin.parameter("federation-upstream", vhost, "o", {"uri": uri})
        native_broker.admin.policy(vhost, "p", "^x", definition={"federation-upstream": "o"})
        native_broker.admin.exchange(vhost, "x")
        document = {"downstream": {"uri": "amqp://h", "management": native_broker.management_uri()}}
        assert run(tmp_path, document, "plan").status == 0
        assert run(tmp_path, document, "plan", "--format", "json").status == 0
        conflict = {"vhosts": {vhost: {"upstreams": {"o": {"uri": uri}}}}}
        done = run(tmp_path, document | conflict, "plan")
        assert done.status == 0
        assert "is also defined at agent.yaml:" in done.err


LEGACY = '[{rabbitmq_federation, [{connections, [{"c", [{host, "h"}, {password, "SECRET"}, {protocol, "amqps"}, \
{ssl_options, [{password, "SECRET"}]}]}]}, {local_username, "u"}, {local_password, "SECRET"}]}].'


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("", "", 0),
        ("password,", "pasword,", 0),
        ("{password, ", "{password ", 2),
        ('"SECRET"', "SECRET", None),
        ('"SECRET"', '["SECRET"]', 2),
        ('"SECRET"', '"SECRET', 2),
        ('"SECRET"', '<<"SECRET"', 2),
        ('"SECRET"', '"\\xSECRET"', None),
        ("host", "password", None),
        ("protocol", "port", None),
        ('"h"', '"guest:SECRET@h"', None),
        ('"amqps"', '"SECRET"', None),
        ("}].", "", 2),
    ],
)
def test_a_2x_configuration(tmp_path: Path, old: str, new: str, status: int | None) -> None:
    text = LEGACY.replace(old, new) if old else LEGACY
    (tmp_path / "rabbitmq.config").write_text(text.replace("SECRET", SECRET))
    done = federation_agent("import-legacy", "rabbitmq.config", cwd=tmp_path)
    assert status is None or done.status == status, done
    assert SECRET not in done.out + done.err
