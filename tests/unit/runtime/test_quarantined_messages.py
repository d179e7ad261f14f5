"""Beside which sources quarantines are looked for."""

from __future__ import annotations

from agent.amqp10.terminus import Terminus
from agent.core.addresses.uri import parse
from agent.links.brokers import Brokers
from agent.links.ends import End
from agent.links.registry import Kinds
from agent.runtime.quarantined_messages import MessageChoice, Quarantined
from tests.unit.model_brokers import THERE, Models, among_models

NOBODY = (parse(f"amqp://{THERE}"),)


def test_none_is_looked_for_beside_a_source_of_amqp10() -> None:
    async def live(models: Models) -> None:
        models.broker(THERE).is_up = False
        by_address = End("shovel source", NOBODY, terminus=Terminus("a", is_source=True))
        kinds = Kinds(Brokers((), "c", stall_after=0.0))
        for sources, problems in (([by_address], 0), ([by_address, End("upstream origin", NOBODY)], 1)):
            found = Quarantined(kinds, (), MessageChoice(), sources)
            assert [each async for each in found.look(with_bodies=False)] == []
            assert len(found.problems) == problems

    among_models(live)
