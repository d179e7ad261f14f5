from __future__ import annotations

import math
from dataclasses import asdict, replace

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.core.links import lifecycle as life
from agent.core.links.lifecycle import LONGEST_TEXT, Do, LinkState, Pause, Phase, Signal, Status, step
from agent.errors import Failure, Side


def run(*events: life.Event) -> tuple[LinkState, list[life.Effect]]:
    state, done = LinkState(), list[life.Effect]()
    for event in events:
        state, effects = step(state, event)
        done.extend(effects)
    return state, done


class Runtime(RuleBasedStateMachine):
    """Executes effects as the runtime does; openings and closings are answered later, in any order of events."""

    def __init__(self) -> None:
        super().__init__()
        self.state = LinkState()
        self.opening = False  # an Open is under way
        self.consumer = False  # a consumer may stand on the queue
        self.closing = False
        self.timer = False
        self.held = False
        self.lingering = False
        self.cleaning = False
        self.finished = 0
        self.unwanted = False
        self.stopped = False

    def send(self, event: life.Event) -> None:
        self.state, effects = step(self.state, event)
        for effect in effects:
            self.execute(effect)

    def execute(self, effect: life.Effect) -> None:
        assert not self.finished, "nothing is asked after the end"
        match effect:
            case Do.OPEN:
                assert not (self.opening or self.consumer or self.closing or self.timer)
                assert not (self.lingering or self.cleaning)
                self.opening, self.held = True, False
            case life.Close():
                assert self.opening or self.consumer
                assert not self.closing
                self.opening, self.closing = False, True
                self.consumer = True  # until the closing is answered, one may stand
            case life.Wait():
                assert not (self.timer or self.opening or self.consumer)
                self.timer = True
            case Do.CANCEL_WAIT:
                assert self.timer
                self.timer = False
            case Do.HOLD_READING:
                assert self.consumer
                assert not self.held
                self.held = True
            case Do.RELEASE_READING:
                assert self.consumer
                assert self.held
                self.held = False
            case life.AwaitRemoval() | Do.CANCEL_REMOVAL_WAIT | life.CleanUp():
                self.execute_removal(effect)
            case Do.FINISH:
                assert self.unwanted or self.stopped
                assert not (self.opening or self.consumer or self.closing or self.timer)
                assert not (self.lingering or self.cleaning)
                self.finished += 1

    def execute_removal(self, effect: life.Effect) -> None:
        if effect is Do.CANCEL_REMOVAL_WAIT:
            assert self.lingering
            self.lingering = False
            return
        assert self.unwanted
        assert not (self.opening or self.consumer or self.closing or self.timer)
        assert not (self.lingering or self.cleaning or self.stopped)
        if isinstance(effect, life.AwaitRemoval):
            self.lingering = True
        else:
            self.cleaning = True

    wishes = st.sampled_from(
        [
            Signal.START, life.Pause(), Signal.RESUME, life.StandAside("another replica"), Signal.TAKE_OVER,
            Signal.RESTART, life.Completed(),
        ]
    )  # fmt: skip
    flows = st.sampled_from(
        [
            *(life.Blocked(side, "memory") for side in Side), *(life.Unblocked(side) for side in Side),
            life.Stalled("nothing confirmed"), Signal.PROGRESSED,
        ]
    )  # fmt: skip

    @rule(event=wishes)
    def wish(self, event: life.Event) -> None:
        self.send(event)

    @rule(event=flows)
    def flow(self, event: life.Event) -> None:
        self.send(event)

    @rule()
    def unwant(self) -> None:
        if not self.finished:
            self.unwanted = True
            self.send(life.Unwanted(1.0))

    @rule()
    def want(self) -> None:
        if not self.finished:
            self.unwanted = False
            self.send(Signal.WANTED_AGAIN)

    @rule()
    def stop(self) -> None:
        if not self.finished:
            self.stopped = True
            self.send(Signal.STOP)

    @precondition(lambda self: self.opening)
    @rule()
    def opened(self) -> None:
        self.opening, self.consumer = False, True
        self.send(Signal.OPENED)

    @precondition(lambda self: self.opening or (self.consumer and not self.closing))
    @rule(permanent=st.booleans(), steady=st.booleans())
    def failed(self, permanent: bool, steady: bool) -> None:
        self.send(life.Failed("refused", Failure(is_permanent=permanent), steady))

    @precondition(lambda self: self.closing)
    @rule(event=st.sampled_from([Signal.OPENED, life.Failed("late"), Signal.RETRY_DUE]))
    def late_answer(self, event: life.Event) -> None:
        self.send(event)
        assert self.closing

    @precondition(lambda self: self.closing)
    @rule()
    def closed(self) -> None:
        self.closing = self.consumer = self.held = False
        self.send(Signal.CLOSED)

    @precondition(lambda self: self.timer)
    @rule()
    def retry_due(self) -> None:
        self.timer = False
        self.send(Signal.RETRY_DUE)

    @precondition(lambda self: self.lingering)
    @rule(messages=st.booleans())
    def removal_due(self, messages: bool) -> None:
        self.lingering = False
        self.send(life.RemovalDue(messages))

    @precondition(lambda self: self.cleaning)
    @rule()
    def kept(self) -> None:
        self.cleaning = False
        self.send(Signal.KEPT)

    @precondition(lambda self: self.cleaning)
    @rule()
    def cleaned_up(self) -> None:
        self.cleaning = False
        self.send(Signal.CLEANED_UP)

    @invariant()
    def a_link_that_should_run_is_on_its_way(self) -> None:
        if self.state.wants_to_run:
            assert self.opening or self.consumer or self.closing or self.timer or self.cleaning

    @invariant()
    def an_unwanted_link_is_on_its_way_out(self) -> None:
        if self.unwanted and not self.stopped and not self.finished:
            assert self.closing or self.lingering or self.cleaning or self.state.standby is not None
            assert self.state.status is (Status.STOPPING if self.cleaning else Status.REMOVING)

    @invariant()
    def what_another_serves_is_not_about_to_be_removed(self) -> None:
        if self.state.standby is not None:
            assert not self.lingering

    @invariant()
    def a_link_that_should_not_run_takes_no_messages_or_is_closing(self) -> None:
        if not self.state.wants_to_run:
            assert not self.opening
            assert not self.timer
            assert not self.consumer or self.closing

    @invariant()
    def reading_is_held_exactly_while_a_side_is_blocked(self) -> None:
        if self.state.phase is Phase.OPEN:
            assert self.held == bool(self.state.blocked)

    @invariant()
    def running_means_a_consumer_stands(self) -> None:
        if self.state.status in {Status.RUNNING, Status.STALLED}:
            assert self.consumer
            assert not self.closing

    @invariant()
    def blocked_is_what_opens_or_stands(self) -> None:
        if self.state.status is Status.BLOCKED:
            assert self.opening or self.consumer
            assert not self.closing

    def teardown(self) -> None:
        """Whatever happened, a stop ends everything once all that is under way is answered."""
        self.stop()
        for _ in range(5):
            if self.closing:
                self.closed()
            if self.cleaning:
                self.cleaned_up()
        assert self.finished == 1
        assert self.state.phase is Phase.GONE


TestRuntime = Runtime.TestCase


def test_a_failure_waits_and_the_first_retry_is_attempt_one() -> None:
    state, done = run(Signal.START, life.Failed("upstream origin: connection refused by h:5672"), Signal.CLOSED)
    assert done == [Do.OPEN, life.Close(settle=False), life.Wait(1)]
    assert (state.status, state.error) == (Status.BACKOFF, "upstream origin: connection refused by h:5672")


def test_a_link_that_opens_says_that_it_is_blocked_and_holds_nothing_back_before_messages_flow() -> None:
    blocked = life.Blocked(Side.DOWNSTREAM, "low on memory")
    state, done = run(Signal.START, blocked)
    assert (state.status, state.error, done) == (Status.BLOCKED, "downstream blocked: low on memory", [Do.OPEN])
    assert step(state, life.Unblocked(Side.DOWNSTREAM)) == (LinkState(phase=Phase.OPENING, started=True), ())
    of_a_shovel, _ = step(state, replace(blocked, where="shovel destination"))
    assert of_a_shovel.error == "shovel destination blocked: low on memory"
    state, effects = step(state, Signal.OPENED)
    assert (state.status, effects) == (Status.BLOCKED, (Do.HOLD_READING,))
    state, effects = step(state, life.Unblocked(Side.DOWNSTREAM))
    assert (state.status, effects) == (Status.RUNNING, (Do.RELEASE_READING,))


def test_attempts_grow_until_the_link_has_run_steadily() -> None:
    again = (Signal.RETRY_DUE, life.Failed("x"), Signal.CLOSED)
    state, done = run(Signal.START, life.Failed("x"), Signal.CLOSED, *again, *again)
    assert [effect.attempt for effect in done if isinstance(effect, life.Wait)] == [1, 2, 3]
    state, _ = step(step(state, Signal.RETRY_DUE)[0], Signal.OPENED)
    assert state.status is Status.RUNNING
    state, _ = step(state, life.Failed("cut", steady=True))
    assert step(state, Signal.CLOSED)[1] == (life.Wait(1),)


def test_what_only_a_change_mends_is_invalid_and_retried_slowly() -> None:
    state, done = run(
        Signal.START, life.Failed("login refused for user fed", Failure(is_permanent=True)), Signal.CLOSED
    )
    assert state.status is Status.INVALID
    assert done[-1] == life.Wait(1, slow=True)
    state, effects = step(state, Signal.RESTART)
    assert effects == (Do.CANCEL_WAIT, Do.OPEN)


def test_a_failing_link_does_not_flicker_between_starting_and_backoff() -> None:
    state, _ = run(Signal.START, life.Failed("x"), Signal.CLOSED, Signal.RETRY_DUE)
    assert (state.phase, state.status) == (Phase.OPENING, Status.BACKOFF)


def test_a_restart_while_starting_makes_no_second_consumer() -> None:
    state, done = run(Signal.START, Signal.RESTART, Signal.RESTART, Signal.OPENED, Signal.CLOSED)
    assert done == [Do.OPEN, life.Close(settle=True), Do.OPEN]
    assert state.phase is Phase.OPENING


@pytest.mark.parametrize("event", [Signal.RESTART, life.Pause(), life.StandAside("served"), Signal.STOP])
def test_what_a_link_that_opens_has_in_flight_is_settled(event: life.Event) -> None:
    """Messages flow while bindings are still made."""
    assert run(Signal.START, event)[1][-1] == life.Close(settle=True)


def test_a_restart_in_the_middle_of_running_settles_first() -> None:
    assert run(Signal.START, Signal.OPENED, Signal.RESTART)[1][-1] == life.Close(settle=True)


def test_a_link_that_has_completed_settles_and_stays_so_until_it_is_restarted() -> None:
    events = (Signal.START, Signal.OPENED, life.Completed())
    state, done = run(*events, Signal.CLOSED)
    assert (state.status, state.error) == (Status.TERMINATED, life.HAS_COMPLETED)
    assert done == [Do.OPEN, life.Close(settle=True)]
    state, done = run(*events, Signal.CLOSED, life.Pause(), Signal.RESUME, life.StandAside("x"), Signal.TAKE_OVER)
    assert (state.status, len(done)) == (Status.TERMINATED, 2)
    state, done = run(*events, Signal.CLOSED, Signal.RESTART)
    assert (state.status, done[2:]) == (Status.STARTING, [Do.OPEN])
    state, done = run(*events, Signal.RESTART, Signal.CLOSED)
    assert (state.status, done[2:]) == (Status.STARTING, [Do.OPEN])
    assert run(*events, Signal.CLOSED, Signal.STOP)[1][2:] == [Do.FINISH]


def test_only_an_open_link_can_have_completed() -> None:
    assert run(Signal.START, life.Completed(), Signal.OPENED)[0].status is Status.RUNNING


def test_both_sides_blocked_hold_once_and_release_once() -> None:
    up, down = life.Blocked(Side.UPSTREAM, "disk"), life.Blocked(Side.DOWNSTREAM, "memory")
    state, done = run(Signal.START, Signal.OPENED, up, down, life.Unblocked(Side.UPSTREAM))
    assert (state.status, state.error) == (Status.BLOCKED, "downstream blocked: memory")
    assert done[1:] == [Do.HOLD_READING]
    assert step(state, life.Unblocked(Side.DOWNSTREAM))[1] == (Do.RELEASE_READING,)


RUNNING = (Signal.START, Signal.OPENED)
AWAITING_REMOVAL = (*RUNNING, life.Unwanted(5.0), Signal.CLOSED)


def test_stopping_the_agent_keeps_what_exists_upstream_and_removal_cleans_up() -> None:
    assert run(*RUNNING, Signal.STOP, Signal.CLOSED)[1][2:] == [Do.FINISH]
    ended = run(*AWAITING_REMOVAL, life.RemovalDue(messages=True), Signal.CLEANED_UP)
    assert ended[1][2:] == [life.AwaitRemoval(5.0), life.CleanUp(messages=True), Do.FINISH]


def test_an_unwanted_link_takes_no_messages_and_removes_nothing_before_it_is_due() -> None:
    state, done = run(*AWAITING_REMOVAL)
    assert (state.status, state.error) == (Status.REMOVING, life.NO_LONGER_DEFINED)
    assert done[1:] == [life.Close(settle=True), life.AwaitRemoval(5.0)]
    assert step(state, life.Unwanted(9.0)) == (state, ())  # the time counts from the first


def test_a_link_that_is_wanted_again_opens_and_nothing_was_removed() -> None:
    state, done = run(*AWAITING_REMOVAL, Signal.WANTED_AGAIN)
    assert (state.status, done[3:]) == (Status.STARTING, [Do.CANCEL_REMOVAL_WAIT, Do.OPEN])
    back, done = run(*RUNNING, life.Unwanted(5.0), Signal.WANTED_AGAIN, Signal.CLOSED)
    assert (back, done[2:]) == (state, [Do.OPEN])


def test_a_link_that_is_wanted_again_while_it_is_removed_opens_after_that() -> None:
    removing = (*AWAITING_REMOVAL, life.RemovalDue(messages=True), Signal.WANTED_AGAIN)
    state, done = run(*removing)
    assert (state.status, done[4:]) == (Status.STARTING, [])
    assert run(*removing, Signal.CLEANED_UP)[1][4:] == [Do.OPEN]
    assert run(*removing, life.Unwanted(7.0), Signal.CLEANED_UP)[1][4:] == [Do.FINISH]


def test_messages_that_came_at_the_last_moment_keep_the_link_where_it_was() -> None:
    state, done = run(*AWAITING_REMOVAL, life.RemovalDue(messages=False), Signal.KEPT)
    assert (state.status, done[3:]) == (Status.REMOVING, [life.CleanUp(messages=False), life.AwaitRemoval(5.0)])


def test_the_agents_end_removes_nothing_of_an_unwanted_link() -> None:
    state, done = run(*AWAITING_REMOVAL, Signal.STOP)
    assert (state.status, done[3:]) == (Status.STOPPING, [Do.CANCEL_REMOVAL_WAIT, Do.FINISH])
    assert run(*RUNNING, life.Unwanted(5.0), Signal.STOP, Signal.CLOSED)[1][2:] == [Do.FINISH]


def test_an_unwanted_link_that_fails_to_connect_waits_no_more() -> None:
    done = run(Signal.START, life.Failed("x"), Signal.CLOSED, life.Unwanted(5.0))[1]
    assert done[3:] == [Do.CANCEL_WAIT, life.AwaitRemoval(5.0)]


def test_what_is_asked_of_an_unwanted_link_has_no_effect_before_it_is_wanted_again() -> None:
    state, done = run(*AWAITING_REMOVAL, Signal.RESTART, life.Pause())
    assert (state.status, done[3:]) == (Status.REMOVING, [])
    state, effects = step(state, Signal.WANTED_AGAIN)
    assert (state.status, effects) == (Status.PAUSED, (Do.CANCEL_REMOVAL_WAIT,))


def test_statuses_in_an_operators_words() -> None:
    standby, _ = run(Signal.START, life.StandAside("replica dc2-b runs it"))
    assert (standby.status, standby.error) == (Status.STANDBY, "replica dc2-b runs it")
    assert run(Signal.START, life.Pause())[0].status is Status.PAUSED
    assert run(Signal.START)[0].status is Status.STARTING
    stalled, _ = run(Signal.START, Signal.OPENED, life.Stalled("no confirm for 30 s"))
    assert (stalled.status, stalled.error) == (Status.STALLED, "no confirm for 30 s")
    assert step(stalled, Signal.PROGRESSED)[0].status is Status.RUNNING
    assert run(Signal.START, Signal.STOP)[0].status is Status.STOPPING


def test_a_pause_shows_who_asked_for_it_when_and_why() -> None:
    pause = life.Pause("ann@ops", 1_790_000_000.0, "disk is replaced")
    state, _ = run(Signal.START, pause)
    assert state.error == "paused by ann@ops since 2026-09-21 14:13 UTC: disk is replaced"
    assert run(Signal.START, pause, Signal.RESUME)[0].error == ""
    assert run(Signal.START, life.Pause())[0].error == ""


def test_a_second_pause_takes_no_reason_away_and_goes_on_since_the_first() -> None:
    first = life.Pause("ann@ops", 1_790_000_000.0, "disk is replaced")
    assert life.Pause("bob@ops", 1_790_000_600.0).after(first) == first
    again = life.Pause("bob@ops", 1_790_000_600.0, "and the other disk").after(first)
    assert again == life.Pause("bob@ops", 1_790_000_000.0, "and the other disk")
    assert first.after(life.Pause()) == first


def test_a_pause_is_read_as_it_was_written() -> None:
    pause = Pause.given("ann@ops", 1_790_000_000.5, "disk is replaced")
    assert Pause.read(asdict(pause)) == pause


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        7,
        "x",
        {},
        {"by": 7, "at": "now", "reason": []},
        {"at": True},
        {"at": math.nan},
        {"at": -1},
        {"at": 1e99},
    ],
)
def test_junk_pauses_too(value: object) -> None:
    assert Pause.read(value) == Pause()


def test_the_texts_of_a_pause_are_bounded_and_printable() -> None:
    pause = Pause.read({"by": "a\x1b[31m\nb", "reason": "x" * 10_000})
    assert "\x1b" not in pause.by
    assert "\n" not in pause.by
    assert len(pause.reason) == LONGEST_TEXT
