"""docs/export.md tells of the fields and reasons that there are."""

from __future__ import annotations

import re
from pathlib import Path

from agent.core.export_event import FIELDS, Reason
from agent.core.links.lifecycle import Status

DOCUMENT = Path(__file__).parents[4] / "docs" / "export.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| .*\|$", re.MULTILINE)


def rows(title: str) -> dict[str, str]:
    """What stands in the first two columns of a table, by the title of its first."""
    _, _, rest = DOCUMENT.read_text().partition(f"| {title} |")
    return dict(ROW.findall(rest.partition("\n\n")[0]))


def test_every_field_is_told_with_its_type_in_its_place() -> None:
    assert list(rows("field").items()) == [(name, str(kind)) for name, kind in FIELDS.items()]


def test_every_reason_is_told_with_a_status() -> None:
    assert set(rows("reason")) == set(Reason)
    assert set(rows("reason").values()) == set(Status)
