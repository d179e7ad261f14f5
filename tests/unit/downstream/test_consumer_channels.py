"""What is kept of channels and consumers has a limit, beyond which their end is unknown and is read."""

from __future__ import annotations

from agent.downstream.consumers import ConsumerChannels, ConsumerOf


def of_queue(tag: str) -> ConsumerOf:
    return ConsumerOf("/", "q", tag, is_below=True)


def test_a_channel_with_very_many_consumers_is_known_to_have_fewer_than_it_has() -> None:
    channels = ConsumerChannels(most=2)
    for tag in ("a", "b", "c", "a"):
        channels.come("one")
        channels.add("one", of_queue(tag))
    assert channels.count(of_queue("c")) == 0
    assert channels.close("one") == ({of_queue("a"): 2, of_queue("b"): 1}, 3)  # of 4, as the broker says then


def test_very_many_channels_are_unknown_and_room_comes_back() -> None:
    channels = ConsumerChannels(most=2)
    for name in ("one", "two", "three"):
        channels.come(name)
        channels.add(name, of_queue(name))
    assert channels.close("three") == ({}, 0)
    assert channels.close("one") == ({of_queue("one"): 1}, 1)
    channels.come("four")
    channels.add("four", of_queue("four"))
    assert channels.close("four") == ({of_queue("four"): 1}, 1)
