"""What was passed on to other agents, and may not have arrived."""

from __future__ import annotations

from agent.amqp.wire import methods
from agent.core.replicas.messages import Asked
from agent.runtime.replicas.unheard import Unheard

FIRST, SECOND, THIRD = (Asked("r", f"{number}" * 8, "pause") for number in range(3))


def passed_on() -> Unheard:
    unheard = Unheard()
    for asked in (FIRST, SECOND, THIRD):
        unheard.count()  # a report
        unheard.count()
        unheard.expect(asked)
    return unheard


def test_what_the_broker_confirms_is_heard() -> None:
    unheard = passed_on()
    unheard.confirmed(methods.Call(methods.BASIC_ACK, {"delivery_tag": 4, "multiple": False}))
    assert list(unheard) == [FIRST, THIRD]
    unheard.confirmed(methods.Call(methods.BASIC_ACK, {"delivery_tag": 5, "multiple": True}))
    assert list(unheard) == [THIRD]
    unheard.confirmed(methods.Call(methods.BASIC_NACK, {"delivery_tag": 6, "multiple": False}))
    assert list(unheard) == [THIRD], "it was refused"
