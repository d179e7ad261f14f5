"""The model broker answers what real brokers answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

import pytest

from agent.amqp.connect import connect
from agent.core.addresses.uri import parse, parse_http
from tests.lab.node import Node
from tests.simulation.broker.broker import Broker
from tests.simulation.commands import Command, Player, generate
from tests.simulation.loop import SimulatedLoop, run
from tests.simulation.network import Network

SEQUENCES: Final = 8
LENGTH: Final = 40
RESTS: Final = (0.02, 0.2, 1.0, 3.0)
"""Seconds after each command in which real brokers deliver what they have; where they were too few, with more."""


def _of_model(commands: list[Command], version: str) -> list[str]:
    chance = Random(1)

    async def play(loop: SimulatedLoop) -> list[str]:
        network = loop.network = Network(loop, chance)
        Broker(network, chance, "model", version=version, has_events=True).listen("127.0.0.4")
        uri = parse("amqp://guest:guest@127.0.0.4")
        url = parse_http("http://guest:guest@127.0.0.4:15672")
        player = Player(lambda: connect(uri, where="model", name="commands"), url, "x.", lambda: asyncio.sleep(1))
        return await player.play(commands)

    return run(play, chance)


async def _of_real(broker: Node, commands: list[Command], prefix: str, rest: float) -> list[str]:
    uri = parse(broker.uri())
    url = parse_http(broker.management_uri())
    player = Player(lambda: connect(uri, where="broker", name="commands"), url, prefix, lambda: asyncio.sleep(rest))
    return await player.play(commands)


def _compare(broker: Node, version: str, prefix: str) -> None:
    for seed in range(SEQUENCES):
        commands = generate(Random(seed), LENGTH)
        model, real = _of_model(commands, version), [""]
        for rest in RESTS:
            if real != model:
                real = asyncio.run(_of_real(broker, commands, f"{prefix}.{seed}.{rest}.", rest))
        for number, (theirs, ours) in enumerate(zip(real, model, strict=True)):
            assert ours == theirs, f"sequence {seed}, command {number}, after {real[max(0, number - 5) : number]}"


@pytest.mark.timeout(900)  # with the longest rests it takes minutes
def test_the_model_answers_as_this_machines_broker(broker: Node, name: Callable[[str], str]) -> None:
    _compare(broker, "3.10.8", name("model"))


@pytest.mark.versions
def test_the_model_answers_as_a_newer_broker(broker_on: Callable[..., Node], name: Callable[[str], str]) -> None:
    _compare(broker_on("sid"), "4.3.6", name("model"))
