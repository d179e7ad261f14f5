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
RESTS: Final = (0.05, 0.2, 1.0, 3.0)
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


async def _of_real(broker: Node, sequences: dict[int, list[Command]], prefix: str, rest: float) -> list[list[str]]:
    """All of them side by side: names tell them apart."""
    uri = parse(broker.uri())
    url = parse_http(broker.management_uri())

    def player(seed: int) -> Player:
        own = f"{prefix}.{seed}.{rest}."
        return Player(lambda: connect(uri, where="broker", name="commands"), url, own, lambda: asyncio.sleep(rest))

    return await asyncio.gather(*(player(seed).play(commands) for seed, commands in sequences.items()))


def _compare(broker: Node, version: str, prefix: str) -> None:
    sequences = {seed: generate(Random(seed), LENGTH) for seed in range(SEQUENCES)}
    model = {seed: _of_model(commands, version) for seed, commands in sequences.items()}
    real = {seed: [""] for seed in sequences}
    for rest in RESTS:
        differ = {seed: commands for seed, commands in sequences.items() if real[seed] != model[seed]}
        if differ:
            real |= zip(differ, asyncio.run(_of_real(broker, differ, prefix, rest)), strict=True)
    for seed, answers in real.items():
        for number, (theirs, ours) in enumerate(zip(answers, model[seed], strict=True)):
            assert ours == theirs, f"sequence {seed}, command {number}, after {answers[max(0, number - 5) : number]}"


@pytest.mark.timeout(900)  # with the longest rests it takes minutes
def test_the_model_answers_as_this_machines_broker(broker: Node, name: Callable[[str], str]) -> None:
    _compare(broker, "3.10.8", name("model"))


@pytest.mark.versions
def test_the_model_answers_as_a_newer_broker(broker_on: Callable[..., Node], name: Callable[[str], str]) -> None:
    _compare(broker_on("sid"), "4.3.6", name("model"))
