"""`validate`: checks configurations offline, one by one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.cli import output
from agent.core.model import Definitions
from agent.core.rules.resolve import resolve
from agent.definitions.document.findings import one_line
from agent.definitions.sources.load import Configuration, load_configuration
from agent.errors import ConfigurationError, Problem, Severity


def validate_files(paths: Sequence[Path], *, secrets: bool, as_json: bool) -> bool:
    """Reports the problems of each file. Returns True if all are valid and the agent runs what they define.
    `secrets`: their files have to be here."""
    files: list[dict[str, Any]] = []
    for path in paths:
        problems, contents = _validated(str(path), secrets=secrets)
        is_valid = all(each.severity is not Severity.ERROR for each in problems)
        not_run = sum(each.severity is Severity.NOT_RUN for each in problems)
        found = [_as_json(each) for each in problems]
        files.append({"file": str(path), "valid": is_valid, "not_run": not_run, "problems": found})
        if as_json:
            continue
        output.complain(*map(str, problems))
        if is_valid:
            but = f", but {not_run} not run" if not_run else ""
            word = output.paint("valid", "yellow" if but else "green")
            output.say(one_line(str(path)), ": ", word, but, f" ({contents})" if contents else "")
    all_valid, all_not_run = all(each["valid"] for each in files), sum(each["not_run"] for each in files)
    if as_json:
        output.say_json({"valid": all_valid, "not_run": all_not_run, "files": files})
    return all_valid and not all_not_run


def _validated(file: str, *, secrets: bool) -> tuple[Sequence[Problem], str]:
    """The problems, and the number of definitions of each kind in words. References that lead nowhere are problems too,
    as far as the exports show which objects there are; where the broker may define more, only `plan` knows."""
    try:
        configuration = load_configuration(file, environment=os.environ, strict=False, secrets=secrets)
    except ConfigurationError as error:
        return error.problems, ""
    definitions = configuration.definitions
    if configuration.settings.sources.management:
        return configuration.warnings, _contents(configuration)
    problems = resolve(definitions, configuration.states).problems
    return (*configuration.warnings, *problems), _contents(configuration)


def _contents(configuration: Configuration) -> str:
    standby = configuration.settings.standby
    return "; ".join(filter(None, [_counts(configuration.definitions), "" if standby is None else standby.in_words]))


def _counts(definitions: Definitions) -> str:
    kinds = ("upstreams", "upstream_sets", "policies", "exchanges", "shovels")
    totals = {kind: sum(len(getattr(vhost, kind)) for vhost in definitions.vhosts.values()) for kind in kinds}
    return ", ".join(f"{kind.replace('_', ' ')}: {total}" for kind, total in totals.items() if total)


def _as_json(problem: Problem) -> dict[str, Any]:
    place = problem.place
    about = {"line": place.line, "column": place.column, "severity": problem.severity, "message": problem.message}
    return {**about, "file": place.source}
