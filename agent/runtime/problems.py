"""The problems that keep definitions out of force, as the log and the board show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NoReturn

import structlog

from agent.definitions.sources.keeper import Keeper
from agent.downstream.listen import LoggedAlreadyError
from agent.errors import AgentError, Problem, Severity
from agent.status.board import Board

REFUSED: Final = "definitions refused, the last good ones stay in force"
WATCHING: Final = "watch definitions"

log = structlog.get_logger()


class Problems:
    """A problem is logged and counted when it is new, and shown for as long as it lasts."""

    def __init__(self, board: Board, keeper: Keeper) -> None:
        self.left_out: tuple[str, ...] = ()  # what single vhosts define or hold, and can't be used
        self._board = board
        self._keeper = keeper
        self._failure = ""
        self._refused: tuple[str, ...] = ()
        self._noted: frozenset[str] = frozenset()

    @property
    def has_failed(self) -> bool:
        """True if the last reload failed, and so put nothing in force."""
        return bool(self._failure)

    def fail(self, error: Exception) -> NoReturn:
        """Note that a reload has failed. Raises the error; LoggedAlreadyError where the last one failed for the same
        reason."""
        before, self._failure = self._failure, _in_words(error)
        self.show()
        if before == self._failure:
            raise LoggedAlreadyError(before) from error
        self._board.refusals += 1
        raise error

    def succeed(self) -> None:
        if self._failure:
            log.info("definitions read again")
        self._failure = ""
        self.show()

    def show(self) -> None:
        """Log, count and show the current problems: refused documents, which change nothing; a downstream that can't be
        read; and what is wrong in single vhosts. They are logged and counted only if they are new."""
        refused = tuple(dict.fromkeys((*texts(self._keeper.problems), *self.left_out)))
        if refused and refused != self._refused:
            self._board.refusals += 1
            log.error(REFUSED, error="; ".join(refused))
        elif self._refused and not refused:
            log.info("all definitions are in force again")
        self._refused = refused
        self._board.unread = self._failure
        is_new = bool(self._failure) and self._failure not in refused
        self._board.problems = (*refused, self._failure) if is_new else refused

    def note(self, remarks: Iterable[str], found: Iterable[Problem]) -> None:
        """Show the remarks and problems that stop nothing else, and log those that are new; definitions that the agent
        doesn't run are shown apart."""
        found = tuple(found)
        not_run = [each for each in found if each.severity is Severity.NOT_RUN]
        notes = (*remarks, *texts(each for each in found if each.severity is not Severity.NOT_RUN))
        all_notes = dict.fromkeys((*notes, *texts(not_run)))
        for note in all_notes:
            if note not in self._noted:
                log.warning("definitions noted", note=note)
        self._noted = frozenset(all_notes)
        self._board.notes = tuple(dict.fromkeys(notes))
        self._board.not_run = tuple(dict.fromkeys(not_run))

    def report(self, error: Exception) -> None:
        """Log an error of the watcher, once; everything stays as it is."""
        if isinstance(error, LoggedAlreadyError):
            return
        if isinstance(error, AgentError):
            log.error("definitions not read", error=str(error))
        else:
            self._board.errors.report(WATCHING, error)


def texts(problems: Iterable[Problem]) -> tuple[str, ...]:
    return tuple(str(problem) for problem in problems)


def _in_words(error: Exception) -> str:
    """The error's text. An error that is no AgentError is a mistake of the agent's own: its text may hold anything, so
    only its kind is shown."""
    if isinstance(error, AgentError):
        return str(error)
    return (
        f"unexpected error while definitions were read ({type(error).__name__}): the log holds the details; report it"
    )
