"""A quarantine that isn't there is not asked for again and again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent.amqp.connect import connect
from agent.amqp.data.splice import Counts
from agent.amqp.wire import methods
from agent.amqp10.terminus import Terminus
from agent.core.addresses.uri import parse
from agent.core.rules.quarantine import QUEUE
from agent.links.ends import End
from agent.runtime.quarantine_depth import QuarantineDepths
from agent.status.board import Board, QuarantineDepth
from tests.simulation.broker.queues import Queue
from tests.simulation.network import Stream
from tests.unit.model_brokers import THERE, Models, among_models

URI = parse(f"amqp://{THERE}")


@dataclass
class Link:
    source: End
    counts: Counts = field(default_factory=Counts)


def test_where_nothing_is_it_asks_again_only_for_a_reason() -> None:
    async def live(models: Models) -> None:
        broker, asked = models.broker(THERE), 0

        def written(_: Stream, data: bytes) -> None:
            nonlocal asked
            asked += data.count(QUEUE.encode())

        models.network.on_write = written
        end, board = End("upstream origin", (URI,)), Board(lambda: 0.0, "a")
        links = [Link(end) for _ in range(30)]
        open_ones = {end: await connect(URI, where="upstream origin", name="test")}
        looks = QuarantineDepths(lambda: links, open_ones.get, board)

        for _ in range(3):
            await looks.look()
        assert (asked, board.quarantine_depth) == (1, QuarantineDepth(0, is_exact=True))
        broker.make_queue(Queue(QUEUE, durable=True))
        for body in (b"a", b"b"):
            broker.publish("", QUEUE, b"\0\0", body)
        await looks.look()
        assert asked == 1, "it is no reason that somebody else declares it"
        links[7].counts.quarantined["too_large"] = 2
        for _ in range(3):
            await looks.look()
        assert (asked, board.quarantine_depth) == (4, QuarantineDepth(2, is_exact=True))

        broker.delete_queue(broker.queues[QUEUE])
        for _ in range(3):
            await looks.look()
        assert (asked, board.quarantine_depth) == (5, QuarantineDepth(0, is_exact=True))
        open_ones[end] = await connect(URI, where="upstream origin", name="test")
        for _ in range(3):
            await looks.look()
        assert asked == 6, "once after each reconnect: another agent may have been here"
        links.append(Link(End("upstream away", ())))
        await looks.look()
        assert (asked, board.quarantine_depth) == (6, QuarantineDepth(0, is_exact=False))

    among_models(live)


def test_beside_a_source_of_amqp10_is_none_and_nothing_is_asked() -> None:
    async def live(models: Models) -> None:
        models.broker(THERE)
        end, board = End("shovel source", (URI,), terminus=Terminus("a", is_source=True)), Board(lambda: 0.0, "a")
        open_one = await connect(URI, where="shovel source", name="test")
        written: list[bytes] = []
        models.network.on_write = lambda _, data: written.append(data)
        await QuarantineDepths(lambda: [Link(end)], {end: open_one}.get, board).look()
        assert (written, board.quarantine_depth) == ([], QuarantineDepth(0, is_exact=True))

    among_models(live)


def test_a_connection_that_could_not_be_asked_is_asked_later() -> None:
    """It may be that of the only user who may look there."""

    async def live(models: Models) -> None:
        broker = models.broker(THERE)
        may_look = await connect(replace(URI, channel_max=1), where="upstream full", name="test")
        may_not = await connect(URI, where="upstream other", name="test")
        its_only_one = await may_look.channel()
        declared = {"queue": QUEUE, "exclusive": True}
        await its_only_one.ask(methods.QUEUE_DECLARE, **declared)
        broker.publish("", QUEUE, b"\0\0", b"a")
        ends = {End(f"upstream {number}", (URI,)): each for number, each in enumerate((may_look, may_not))}
        board = Board(lambda: 0.0, "a")
        looks = QuarantineDepths(lambda: [Link(end) for end in ends], ends.get, board)
        await looks.look()
        assert board.quarantine_depth.messages is None
        await its_only_one.close()
        await looks.look()
        assert board.quarantine_depth == QuarantineDepth(1, is_exact=True)

    among_models(live)


def test_ends_of_one_place_are_counted_together_whichever_has_put_something_there() -> None:
    """One looked before anything was there, and has no reason to look again."""

    async def live(models: Models) -> None:
        broker = models.broker(THERE)
        ends = [End(f"upstream {name}", (URI,)) for name in ("late", "puts", "looked")]
        links, board = [Link(end) for end in ends], Board(lambda: 0.0, "a")
        open_ones = {end: await connect(URI, where=end.where, name="test") for end in ends[1:]}
        looks = QuarantineDepths(lambda: links, open_ones.get, board)
        await looks.look()
        assert board.quarantine_depth == QuarantineDepth(0, is_exact=False), "the first was never connected"

        broker.make_queue(Queue(QUEUE, durable=True))
        broker.publish("", QUEUE, b"\0\0", b"a")
        links[1].counts.quarantined["too_large"] = 1
        open_ones[ends[0]] = await connect(URI, where=ends[0].where, name="test")
        await looks.look()
        assert board.quarantine_depth == QuarantineDepth(1, is_exact=True)
        del open_ones[ends[1]]
        broker.publish("", QUEUE, b"\0\0", b"b")
        await looks.look()
        assert board.quarantine_depth == QuarantineDepth(2, is_exact=True), "any of them may look"

    among_models(live)
