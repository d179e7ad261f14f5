"""`validate`: checks configurations offline, one by one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.cli import output
from agent.core.model import Definitions
from agent.core.rules.resolve import resolve
from agent.definitions.document.findings import one_line
from agent.definitions.sources.load import Configuration, load_configuration
from agent.errors import ConfigurationError, Problem, Severity


@dataclass(frozen=True, slots=True)
class Validation:
    file: str
    problems: tuple[Problem, ...]
    contents: str = ""

    @property
    def is_valid(self) -> bool:
        return all(problem.severity is not Severity.ERROR for problem in self.problems)

    @property
    def not_run(self) -> int:
        return sum(problem.severity is Severity.NOT_RUN for problem in self.problems)


def validate_files(paths: Sequence[Path], *, secrets: bool, as_json: bool) -> bool:
    """Reports the problems of each file. Returns True if all are valid and the agent runs what they define.
    `secrets`: their files have to be here."""
    found = [validated(path, secrets=secrets) for path in paths]
    if as_json:
        output.say_json(
            {
                "valid": all(one.is_valid for one in found),
                "not_run": sum(one.not_run for one in found),
                "files": [_as_json(one) for one in found],
            }
        )
    else:
        for one in found:
            _print(one)
    return all(one.is_valid and not one.not_run for one in found)


def validated(path: Path, *, secrets: bool) -> Validation:
    try:
        configuration = load_configuration(str(path), environment=os.environ, strict=False, secrets=secrets)
    except ConfigurationError as error:
        return Validation(str(path), error.problems)
    problems = (*configuration.warnings, *_without_links(configuration))
    return Validation(str(path), problems, count(configuration.definitions))


def _without_links(configuration: Configuration) -> tuple[Problem, ...]:
    """References that lead nowhere, as far as the exports show which objects there are. Where the broker may define
    more, only `plan` knows."""
    if configuration.settings.sources.management:
        return ()
    return resolve(configuration.definitions, configuration.states).problems


def count(definitions: Definitions) -> str:
    """The number of definitions of each kind, in words."""
    kinds = ("upstreams", "upstream_sets", "policies", "exchanges", "shovels")
    totals = {kind: sum(len(getattr(vhost, kind)) for vhost in definitions.vhosts.values()) for kind in kinds}
    return ", ".join(f"{kind.replace('_', ' ')}: {total}" for kind, total in totals.items() if total)


def _print(one: Validation) -> None:
    output.complain(*(str(problem) for problem in one.problems))
    if one.is_valid:
        contents = f" ({one.contents})" if one.contents else ""
        but = f", but {one.not_run} not run" if one.not_run else ""
        output.say(one_line(one.file), ": ", output.paint("valid", "yellow" if but else "green"), but, contents)


def _as_json(one: Validation) -> dict[str, Any]:
    problems = [
        {
            "line": problem.place.line,
            "column": problem.place.column,
            "severity": problem.severity,
            "message": problem.message,
            "file": problem.place.source,
        }
        for problem in one.problems
    ]
    return {"file": one.file, "valid": one.is_valid, "not_run": one.not_run, "problems": problems}
