from __future__ import annotations

from ssl import SSLError

import pytest

from agent.amqp.connect import Server
from agent.amqp.failures import NOT_ALLOWED, NoAccessError, blames_message, lost, one_line, opening_failed
from agent.amqp.wire.channel import ChannelClosedError
from agent.amqp.wire.ends import ConnectionClosedError, EndOfStreamError, HeartbeatMissedError
from agent.amqp.wire.login import Terms
from agent.core import fields
from agent.core.addresses.secret import Secret
from agent.core.addresses.uri import Mechanism
from agent.core.links.reasons import word_of
from agent.core.status.failure_kinds import cause_of
from agent.errors import BrokerError, FailureKind, PermanentError, TransientError


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (HeartbeatMissedError(), FailureKind.HEARTBEATS_MISSED),
        (ConnectionClosedError(320, "shutdown"), FailureKind.CLOSED),
        (ChannelClosedError(406, "no"), FailureKind.CLOSED),
        (EndOfStreamError(), FailureKind.LOST),
        (ConnectionRefusedError(), FailureKind.UNREACHABLE),
        (TimeoutError(), FailureKind.UNREACHABLE),
        (ValueError(), FailureKind.OTHER),
        (None, FailureKind.OTHER),
    ],
)
def test_what_caused_a_failure_tells_its_kind(cause: BaseException | None, kind: FailureKind) -> None:
    told = TransientError("upstream origin: in an operator's words")
    told.__cause__ = cause
    assert told.failure.kind is kind
    around = TransientError("several endpoints")
    around.__cause__ = told
    assert around.failure.kind is kind
    if isinstance(cause, BrokerError):
        assert cause.failure.kind is kind


def test_what_has_to_be_changed_first_was_refused() -> None:
    told = PermanentError("login refused")
    told.__cause__ = ConnectionClosedError(403, "ACCESS_REFUSED")
    assert (told.failure.is_permanent, word_of(told.failure), cause_of(told.failure)) == (
        True, "refused", FailureKind.INVALID,
    )  # fmt: skip


@pytest.mark.parametrize(
    "cause", [EndOfStreamError(), HeartbeatMissedError(), ConnectionClosedError(320, ""), OSError()]
)
def test_what_has_to_be_changed_is_no_passing_failure_that_it_was_raised_from(cause: BaseException) -> None:
    found = PermanentError("brokers from 4.1 on need more")
    found.__cause__ = cause
    assert cause_of(found.failure) is FailureKind.INVALID


def test_what_ends_a_connection_that_stood_passes() -> None:
    """Also where TLS breaks: certificates and versions were good enough before."""
    end = EndOfStreamError()
    end.__cause__ = broken = SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] decryption failed")
    broken.reason = "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"
    found = lost(end, where="upstream origin h:5671")
    assert isinstance(found, TransientError)
    assert str(found) == "upstream origin h:5671: TLS failed: DECRYPTION_FAILED_OR_BAD_RECORD_MAC"


def test_a_failure_has_its_place_once_and_as_a_field() -> None:
    terms = Terms("upstream origin h:5672", "/", "u", Secret(""), (Mechanism.PLAIN,), 10)
    with pytest.raises(TransientError) as raised:
        terms.agree_on_frame_max(7)
    found = opening_failed(raised.value, terms, None, None)
    assert (found.where, found.what) == ("upstream origin h:5672", "broken AMQP: frames of 7 bytes")
    assert str(found) == "upstream origin h:5672: broken AMQP: frames of 7 bytes"


def test_a_peers_words_are_one_bounded_line_of_visible_characters() -> None:
    assert one_line("a\r\nb\x1b[31m\u202ec\udcff  d") == "a b\ufffd[31m\ufffdc\ufffd d"
    assert len(one_line("x" * 10_000)) == len(one_line(" x" * 10_000)) == 300


def test_what_a_server_tells_of_itself_is_bounded() -> None:
    texts = (("product", "p" * 5_000), ("version", "1\n2"), ("cluster_name", "c" * 256))
    server = Server.read(tuple((name, fields.text(value)) for name, value in texts))
    assert (len(server.product), server.version, server.cluster_name) == (300, "1 2", None)
    assert Server.read((("cluster_name", fields.text("c" * 255)),)).cluster_name == "c" * 255


USER_ID = "user_id property set to"


@pytest.mark.parametrize(
    ("cause", "blames"),
    [
        (ConnectionClosedError(541, "INTERNAL_ERROR"), True),
        (ConnectionClosedError(505, "UNEXPECTED_FRAME"), True),
        (ConnectionClosedError(501, "FRAME_ERROR"), True),
        (ConnectionClosedError(320, "CONNECTION_FORCED"), False),
        (ChannelClosedError(406, "PRECONDITION_FAILED - invalid expiration 'abc'"), True),
        (ChannelClosedError(503, "COMMAND_INVALID - bad value for 'x-cc' message-annotation: {list,[{uint,5}]}"), True),
        (ChannelClosedError(403, f"ACCESS_REFUSED - {USER_ID} 'guest' but authenticated user was 'other'"), True),
        (ChannelClosedError(403, f"ACCESS_REFUSED - write access to exchange '{USER_ID}' in vhost '/' refused"), False),
        (ChannelClosedError(404, "NOT_FOUND - no exchange 'x'"), False),
        (EndOfStreamError(), False),
    ],
)  # fmt: skip
def test_a_message_is_blamed_for_what_a_broker_closes_over_what_it_read(cause: BrokerError, blames: bool) -> None:
    told = TransientError("downstream b:5672: the broker closed the connection")
    told.__cause__ = cause
    assert blames_message(told) is blames
    assert blames_message(cause) is blames


def test_no_access_is_a_verdict_of_the_broker_and_no_failure_of_what_it_asks() -> None:
    terms = Terms("upstream", "/", "u", Secret(""), (Mechanism.PLAIN,), 10)
    refused = "NOT_ALLOWED - access to vhost '/' refused for user 'u'"
    error = opening_failed(ConnectionClosedError(NOT_ALLOWED, refused), terms, None, None)
    assert isinstance(error, NoAccessError)
    failed = f"{refused}, backend rabbit_auth_backend_ldap returned an error: timeout"
    assert isinstance(opening_failed(ConnectionClosedError(NOT_ALLOWED, failed), terms, None, None), TransientError)
