"""What was passed on to other agents, and may not have arrived."""

from __future__ import annotations

from agent.amqp.wire import methods
from agent.core.replicas.messages import Asked
from agent.runtime.replicas.lease_channel import UnconfirmedRequests

FIRST, SECOND, THIRD = (Asked("r", f"{number}" * 8, "pause") for number in range(3))


def passed_on() -> UnconfirmedRequests:
    unconfirmed = UnconfirmedRequests()
    for asked in (FIRST, SECOND, THIRD):
        unconfirmed.count()  # a report
        unconfirmed.count()
        unconfirmed.expect(asked)
    return unconfirmed


def test_what_the_broker_confirms_is_heard() -> None:
    unconfirmed = passed_on()
    unconfirmed.confirmed(methods.Call(methods.BASIC_ACK, {"delivery_tag": 4, "multiple": False}))
    assert list(unconfirmed) == [FIRST, THIRD]
    unconfirmed.confirmed(methods.Call(methods.BASIC_ACK, {"delivery_tag": 5, "multiple": True}))
    assert list(unconfirmed) == [THIRD]
    unconfirmed.confirmed(methods.Call(methods.BASIC_NACK, {"delivery_tag": 6, "multiple": False}))
    assert list(unconfirmed) == [THIRD], "it was refused"
