"""Configurations of the 2.x federation plugin (Erlang terms) as the agent's YAML."""

from __future__ import annotations

from agent.definitions.document.findings import one_line
from agent.definitions.sources.legacy.erlang import LegacyError, parse
from agent.definitions.sources.legacy.federation import read_federation
from agent.definitions.sources.legacy.translate import translate
from agent.definitions.sources.legacy.yaml_writer import render

__all__ = ["LegacyError", "import_legacy"]


def import_legacy(text: bytes, *, file: str) -> str:
    """The YAML for a rabbitmq.config, or a LegacyError with every problem; passwords are in neither."""
    source = one_line(file)
    document = parse(text, file=source)
    return render(translate(read_federation(document, source), source, is_latin1=document.is_latin1))
