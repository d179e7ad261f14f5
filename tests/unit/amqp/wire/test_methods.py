from __future__ import annotations

import pamqp.base
import pamqp.body
import pamqp.commands
import pamqp.frame
import pamqp.header
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.amqp.wire import frames, methods
from agent.amqp.wire.methods import BY_IDS, Method
from agent.amqp.wire.tables import CodecError
from agent.core import fields

texts = st.text(st.characters(codec="utf-8"), max_size=40)
BY_KIND: dict[str, st.SearchStrategy[object]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 255),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**64 - 1),
    "shortstr": texts,
    "longstr": texts,
    "table": st.dictionaries(texts, texts.map(fields.text), max_size=3).map(lambda found: tuple(found.items())),
}


@given(st.sampled_from(list(BY_IDS.values())), st.data())
def test_a_method_survives_its_bytes(method: Method, data: st.DataObject) -> None:
    values = {name: data.draw(BY_KIND[kind]) for name, kind in method.arguments}
    call = methods.decode(method.encode(**values))
    assert call.method is method
    assert call.values == values


@given(st.binary(max_size=60) | st.sampled_from(list(BY_IDS.values())).flatmap(
    lambda method: st.binary(max_size=30).map(lambda rest: method.encode()[:4] + rest)
))  # fmt: skip
def test_garbage_is_a_method_or_an_error(payload: bytes) -> None:
    try:
        methods.decode(payload)
    except CodecError:
        return


def test_an_argument_that_a_method_lacks_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        methods.QUEUE_DECLARE.encode(nonsense=1)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            methods.QUEUE_DECLARE.encode(queue="q", durable=True, arguments=(("x-expires", fields.long(2**40)),)),
            pamqp.commands.Queue.Declare(queue="q", durable=True, arguments={"x-expires": 2**40}),
        ),
        (
            methods.EXCHANGE_DECLARE.encode(exchange="x", type="topic", durable=True, internal=True, auto_delete=True),
            pamqp.commands.Exchange.Declare(
                exchange="x", exchange_type="topic", durable=True, internal=True, auto_delete=True
            ),
        ),
        (
            methods.EXCHANGE_BIND.encode(source="a", destination="b", routing_key="k.#"),
            pamqp.commands.Exchange.Bind(source="a", destination="b", routing_key="k.#"),
        ),
        (methods.BASIC_QOS.encode(prefetch_count=1000), pamqp.commands.Basic.Qos(prefetch_count=1000)),
        (
            methods.BASIC_CONSUME.encode(queue="q", consumer_tag="t", no_ack=True),
            pamqp.commands.Basic.Consume(queue="q", consumer_tag="t", no_ack=True),
        ),
        (
            methods.BASIC_PUBLISH.encode(exchange="x", routing_key="k", mandatory=True),
            pamqp.commands.Basic.Publish(exchange="x", routing_key="k", mandatory=True),
        ),
        (
            methods.BASIC_NACK.encode(delivery_tag=7, multiple=True, requeue=True),
            pamqp.commands.Basic.Nack(delivery_tag=7, multiple=True, requeue=True),
        ),
        (methods.CONFIRM_SELECT.encode(), pamqp.commands.Confirm.Select()),
    ],
)  # fmt: skip
def test_another_codec_writes_the_same_bytes(ours: bytes, theirs: pamqp.base.Frame) -> None:
    assert frames.frame(frames.METHOD, 3, ours) == pamqp.frame.marshal(theirs, 3)


@given(st.binary(max_size=300), st.integers(9, 100))
def test_a_body_is_cut_to_the_frames_that_the_broker_takes(body: bytes, frame_max: int) -> None:
    data = frames.content(1, b"\0\0", body, frame_max)
    consumed, _, header = pamqp.frame.unmarshal(data)
    assert isinstance(header, pamqp.header.ContentHeader)
    assert header.body_size == len(body)
    got = b""
    while consumed < len(data):
        size, _, part = pamqp.frame.unmarshal(data[consumed:])
        assert size <= frame_max
        assert isinstance(part, pamqp.body.ContentBody)
        got += part.value or b""
        consumed += size
    assert got == body
