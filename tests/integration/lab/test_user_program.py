"""What a program of the tests takes from a queue: all that the broker gave it."""

from __future__ import annotations

import threading

from tests.integration.federation.sites import Q, Site
from tests.lab.user_program import messages, numbered

PUBLISHED = numbered(4_000)
MOMENT = 0.05


def test_nothing_is_lost_of_what_comes_while_a_program_ends(here: Site) -> None:
    here.exchange().queue("k")
    publisher = threading.Thread(target=here.publish, args=[PUBLISHED])
    publisher.start()
    came: list[str] = []
    while publisher.is_alive():
        came += [each.body.decode() for each in messages(here.uri, Q, len(PUBLISHED), MOMENT)]
    publisher.join()
    came += here.take(len(PUBLISHED) - len(came))
    assert came == PUBLISHED
