"""What listens at the configured address may be no agent, or one that is in trouble: `plan` neither hangs nor fails."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from agent.cli.remote import Remote, RemoteError, reach
from agent.cli.running_agent import RunningAgent, find_running
from agent.core.links.plan import RunningLink
from agent.core.settings import HttpSettings

Answer = Callable[[socket.socket], None]
LINK = {"id": "l", "kind": "exchange", "status": "running"}
KNOWN = {
    "cluster": "there",
    "vhost": "/",
    "queue": "q",
    "letter": "A",
    "arguments": [],
    "notices_deletions": True,
    "noticing_is_refused": False,
    "bindings": [["k", [], True], ["large", [], False]],
}
BINDINGS = {"status": "running", "uris": ["amqp://there"], "known": KNOWN}


def http(body: bytes) -> Answer:
    def answer(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    return answer


def silent(sock: socket.socket) -> None:
    time.sleep(60)


def dripping(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        sock.sendall(b" ")
        time.sleep(0.1)


def dripping_head(sock: socket.socket) -> None:
    while True:
        sock.sendall(b"H")
        time.sleep(0.1)


@contextmanager
def listening(*answers: Answer) -> Iterator[int]:
    """Answers one question after the other, the last one again and again."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                for number in range(99):
                    sock, _ = server.accept()
                    answer = answers[min(number, len(answers) - 1)]
                    threading.Thread(target=one, args=(answer, sock), daemon=True).start()

        def one(answer: Answer, sock: socket.socket) -> None:
            with sock, suppress(OSError):
                sock.recv(65536)
                answer(sock)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def links_of(port: int, within: float) -> tuple[Sequence[RunningLink], bool]:
    url = f"http://127.0.0.1:{port}"
    agent = RunningAgent(url, "here", Remote(url, None, within=within))
    return asyncio.run(agent.links()), agent.has_answered


@pytest.mark.parametrize(
    "answer",
    [
        http(b"[" * 100_000),
        http(b"[]"),
        http(b'{"cluster": ["here"]}'),
        http(b"\xff\xfe"),
        lambda sock: sock.sendall(b"SSH-2.0-OpenSSH_9.2\r\n"),
    ],
)
def test_garbage_is_no_agent(answer: Answer) -> None:
    with listening(answer) as port:
        assert find_running(HttpSettings(port=port)) is None


@pytest.mark.parametrize("answer", [silent, dripping, dripping_head])
def test_an_answer_that_never_ends_is_given_up_once_and_not_for_each_link(answer: Answer) -> None:
    links = json.dumps([LINK] * 50).encode()
    with listening(http(links), answer) as port:
        began, within = time.monotonic(), 0.6
        found, has_answered = links_of(port, within)
        assert (list(found), has_answered) == ([], False)
        assert time.monotonic() - began < 50 * within / 2


@pytest.mark.parametrize("answer", [silent, dripping, dripping_head])
@pytest.mark.parametrize("has_config", [False, True])
def test_a_command_that_may_wait_for_a_moment_only_does_so_wherever_its_address_is_from(
    answer: Answer, tmp_path: Path, *, has_config: bool
) -> None:
    config = tmp_path / "agent.yml"
    with listening(answer) as port:
        url = f"http://127.0.0.1:{port}"
        config.write_text(json.dumps({"agent": {"http": {"listen": f"127.0.0.1:{port}"}}}))
        agent = reach(None, None, config, within=0.3) if has_config else reach(url, None, None, within=0.3)
        began = time.monotonic()
        with pytest.raises(RemoteError):
            agent.check_alive()
        assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"known": {**KNOWN, "bindings": [[1, []], ["k", []]]}},
        {"known": {**KNOWN, "bindings": 5}},
        {"known": {**KNOWN, "queue": []}},
        {"known": []},
        {"uris": [3]},
        {"status": {}},
    ],
)
def test_what_no_agent_answers_is_not_believed(wrong: dict[str, Any]) -> None:
    with listening(http(json.dumps([LINK]).encode()), http(json.dumps(BINDINGS | wrong).encode())) as port:
        assert links_of(port, 30.0) == ((), False)


def test_a_paused_shovel_is_told_without_asking_what_it_has_bound() -> None:
    shovel = {"id": "s", "kind": "shovel", "vhost": "v", "name": "drain", "status": "paused", "backlog_last": 7}
    with listening(http(json.dumps([shovel]).encode()), http(b"[]")) as port:
        [link], has_answered = links_of(port, 30.0)
    assert has_answered
    assert (link.kind, link.vhost, link.name, link.backlog, link.is_paused) == ("shovel", "v", "drain", 7, True)


def test_what_a_link_has_bound() -> None:
    with listening(http(json.dumps([LINK]).encode()), http(json.dumps(BINDINGS).encode())) as port:
        [link], has_answered = links_of(port, 30.0)
    assert has_answered
    assert link.is_consuming
    assert link.known is not None
    assert (link.known.has_canary, link.known.canary_is_refused) == (True, False)
    assert [group.routing_key for group in link.known.bound] == ["k"]
