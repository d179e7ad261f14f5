"""The HTTP API of a running agent, for the commands that show and control links; and the link that somebody names."""

from __future__ import annotations

import getpass
import http.client
import json
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

from agent.cli import output
from agent.cli.options import usual_config
from agent.core.addresses.secret import Secret, redacted
from agent.core.settings import HttpSettings
from agent.core.text import MOST_NAMED, listed, named_so
from agent.errors import AgentError, CannotStartError, ConfigurationError, UnknownLinkError
from agent.network import explain

TIMEOUT: Final = 30.0
_MAX_TEXT: Final = 500  # of an error response
_MAX_ANSWER: Final = 256 * 1024 * 1024  # 20,000 bindings take 8 MiB
NO_AGENT: Final = "the response is not an agent's: check the address"
BY_A_PROGRAM: Final = "X-Federation-Agent"  # without a token, the agent accepts only programs under other names
TOKEN_VARIABLE: Final = "FEDERATION_AGENT_TOKEN"  # noqa: S105 - a name

T = TypeVar("T")


class RemoteError(AgentError):
    """The agent can't be reached, or refuses the request."""


class TokenError(RemoteError):
    """The agent answers, and wants another token."""


class Remote:
    """One request at a time; failures are a RemoteError."""

    def __init__(
        self,
        url: str,
        token_file: Path | None,
        *,
        token: Secret | None = None,
        unread: str = "",
        within: float | None = None,
    ) -> None:
        """`token` is one that is known already; `unread` explains why that of a configuration isn't. `within` bounds a
        request as a whole, where it isn't known that an agent listens: something else may answer slowly and without
        end."""
        self._within = within
        self._timeout = TIMEOUT if within is None else within
        self._address = _address(url)
        self._token = _token(token_file) if token is None else token.reveal()
        self._unread = f"{unread}; " if unread else ""
        self.where = f"agent {self._address.scheme}://{self._address.netloc}"

    def check_alive(self) -> None:
        status, found = self._ask("GET", "/livez")
        if status != http.client.OK:
            raise self._refused(status, found)

    def links(self, vhost: str | None = None) -> list[dict[str, Any]]:
        query = "" if vhost is None else f"?vhost={quote(vhost, safe='')}"
        return self._get(f"/api/links{query}", list)

    def overview(self) -> dict[str, Any]:
        return self._get("/api/overview", dict)

    def causes(self) -> dict[str, Any]:
        """The causes of trouble, most important first."""
        return self._get("/api/causes", dict)

    def standby(self) -> dict[str, Any] | None:
        """None where no standby is configured."""
        return self._find("/api/standby")

    def transitions(self, *, after: int) -> list[dict[str, Any]]:
        """The last changes of status of all links with a greater number, oldest first."""
        return self._get(f"/api/transitions?after={after}", list)

    def metrics(self) -> str:
        return self._get("/metrics", str, read=bytes.decode)

    def link(self, link_id: str) -> dict[str, Any] | None:
        """One link with its history; None where there is no such link."""
        return self._find(f"/api/links/{quote(link_id, safe='')}")

    def bindings(self, link_id: str) -> dict[str, Any] | None:
        """The bindings of the link upstream; None where there is no such link."""
        return self._find(f"/api/links/{quote(link_id, safe='')}/bindings")

    def acknowledge(self, cause_id: str, about: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The cause as it is then, without `about` acknowledged no more; None where there is no such cause."""
        method = "DELETE" if about is None else "POST"
        found = self._change(method, f"/api/causes/{quote(cause_id, safe='')}/ack", about)
        return found if isinstance(found, dict) else None

    def act(self, link_id: str, action: str, about: Mapping[str, str] | None = None) -> dict[str, Any] | None:
        """The link as it is then; None where there is no such link."""
        found = self._change("POST", f"/api/links/{quote(link_id, safe='')}/{action}", about)
        return found if found is None or isinstance(found, dict) else {}

    def _get(self, path: str, kind: type[T], read: Callable[[bytes], Any] = json.loads) -> T:
        status, found = self._ask("GET", path, read=read)
        if status != http.client.OK or not isinstance(found, kind):
            raise self._refused(status, found)
        return found

    def _find(self, path: str) -> dict[str, Any] | None:
        status, found = self._ask("GET", path)
        if status == http.client.NOT_FOUND:
            return None
        if status != http.client.OK or not isinstance(found, dict):
            raise self._refused(status, found)
        return found

    def _change(self, method: str, path: str, about: Mapping[str, Any] | None) -> Any:
        status, found = self._ask(method, path, about)
        if status not in {http.client.OK, http.client.NOT_FOUND}:
            raise self._refused(status, found)
        return found if status == http.client.OK else None

    def _ask(
        self,
        method: str,
        path: str,
        sent: Mapping[str, Any] | None = None,
        *,
        read: Callable[[bytes], Any] = json.loads,
    ) -> tuple[int, Any]:
        kind = http.client.HTTPSConnection if self._address.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._address.hostname or "", self._address.port, timeout=self._timeout)
        headers = {BY_A_PROGRAM: "1"} | ({"Authorization": f"Bearer {self._token}"} if self._token else {})
        body = None if sent is None else json.dumps(sent)
        try:
            connection.connect()
            with self._cut_off(connection.sock):
                connection.request(method, self._address.path.rstrip("/") + path, body, headers=headers)
                answer = connection.getresponse()
                found = answer.read(_MAX_ANSWER)
            return answer.status, read(found)
        except ConnectionRefusedError as error:
            raise RemoteError(f"{self.where}: connection refused: check the address and that the agent runs") from error
        except ConnectionResetError as error:
            raise RemoteError(f"{self.where}: {NO_AGENT}") from error
        except OSError as error:
            raise RemoteError(str(explain(error, where=self.where, seconds=self._timeout))) from error
        except (http.client.HTTPException, ValueError, RecursionError) as error:
            raise RemoteError(f"{self.where}: {NO_AGENT}") from error
        finally:
            connection.close()

    @contextmanager
    def _cut_off(self, sock: socket.socket) -> Iterator[None]:
        """Ends the connection where the answer takes longer than it may."""
        if self._within is None:
            yield
            return
        timer = threading.Timer(self._within, _shut_down, [sock])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _refused(self, status: int, found: Any) -> RemoteError:
        error = found.get("error") if isinstance(found, dict) else None
        if status == http.client.UNAUTHORIZED:
            why = "the token is refused" if self._token else "a token is needed"
            return TokenError(
                f"{self.where}: {why}: {self._unread}give its token by --token-file or {TOKEN_VARIABLE}, or its "
                "configuration by -c"
            )
        if error is None or status == http.client.NOT_FOUND:
            return RemoteError(f"{self.where}: {NO_AGENT}")
        return RemoteError(f"{self.where}: refused ({status}): {redacted(str(error)[:_MAX_TEXT], Secret(self._token))}")


def myself() -> str:
    """The user who asks an agent for something, as far as this machine knows."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no such user here, as in a container
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def reach(url: str | None, token_file: Path | None, config: Path | None, *, within: float | None = None) -> Remote:
    """The agent at `url`, or the one of a configuration, whose token is given to another address only on request."""
    file = config if config is not None or url else usual_config()
    if file is None:
        return Remote(url or url_of(HttpSettings()), token_file, within=within)
    from agent.definitions.sources.load import load_http

    try:
        settings, unread = load_http(str(file), environment=os.environ)
    except ConfigurationError as error:
        if config is not None:
            raise
        output.complain(*map(str, error.problems))  # the agent may run on with what it read before
        settings, unread = HttpSettings(), ""
    given = _token(token_file)
    token = Secret(given) if given else settings.token
    return Remote(url or url_of(settings), None, token=token, unread=unread, within=within)


def url_of(settings: HttpSettings) -> str:
    """The URL at which this machine reaches an agent that listens there."""
    host = settings.host or "127.0.0.1"
    with suppress(ValueError):  # of names
        address = ip_address(host)
        if address.is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "::1"
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def _shut_down(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _address(url: str) -> SplitResult:
    """Errors never quote the address: it may contain a password."""
    try:
        address = urlsplit(url if "//" in url else f"http://{url}")
        usable = address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
    except ValueError:
        address, usable = SplitResult("", "", "", "", ""), False
    if not usable:
        raise RemoteError("--url is not the address of an agent; write http://HOST:PORT")
    if address.username is not None or address.query or address.fragment:
        raise RemoteError("--url takes scheme, host, port and path only; put a token into --token-file")
    return address


def _token(file: Path | None) -> str:
    if file is None:
        where, token = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE, "").strip()
    else:
        where = f"token file {str(file)!r}"
        try:
            token = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise CannotStartError(f"{where} can't be read: {reason}") from error
    if not token.isascii() or not token.isprintable():
        raise CannotStartError(f"{where} holds no token: it must be one line of printable ASCII")
    return token


def name_of(link: Mapping[str, Any]) -> str:
    return str(link.get("exchange") or link.get("queue") or link.get("name") or "")


def full_name(link: Mapping[str, Any]) -> str:
    return f"{link['vhost']}/{name_of(link)}"


def find(links: Sequence[Mapping[str, Any]], named: str, *, where: str) -> Mapping[str, Any]:
    """Raises UnknownLinkError."""
    found = named_so(links, named, lambda link: (str(link["id"]), full_name(link)))
    if not found:
        hint = _hint(links, named)
        raise UnknownLinkError(f"{where}: no link has the id or the vhost/name {named!r}; `links` lists them{hint}")
    if len(found) > 1:
        raise UnknownLinkError(f"{where}: {named!r} names {len(found):,} links: {_listed(found)}; give an id")
    return found[0]


def _hint(links: Sequence[Mapping[str, Any]], named: str) -> str:
    """A name without its vhost is what people type first."""
    same = dict.fromkeys(full_name(link) for link in links if name_of(link) == named)
    if not same:
        from agent.core.text import did_you_mean

        return did_you_mean(named, dict.fromkeys(map(full_name, links)))
    more = len(same) - MOST_NAMED
    shown = " or ".join(map(repr, list(same)[:MOST_NAMED]))
    return f"; did you mean {shown}{f' or {more} more' if more > 0 else ''}?"


def _listed(links: Sequence[Mapping[str, Any]]) -> str:
    named = [f"{link['id']} ({link['kind']} {full_name(link)}, upstream {link['upstream'] or '-'})" for link in links]
    return listed(named)


def completions(links: Iterable[Mapping[str, Any]], incomplete: str) -> list[tuple[str, str]]:
    """Ids and names for a shell's completion, each with what helps to choose."""
    found = []
    for link in links:
        named = full_name(link)
        if str(link["id"]).startswith(incomplete):
            found.append((str(link["id"]), f"{link['status']} {named}"))
        if incomplete and named.startswith(incomplete):
            found.append((named, f"{link['status']} {link['id']}"))
    return found
