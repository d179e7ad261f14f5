"""What `check` takes on its command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cli.check import check_brokers
from agent.errors import UsageError

CONFIGURATION = "downstream: {uri: 'amqp://127.0.0.1:1'}\n"


@pytest.mark.parametrize("given", ["http://u:secret@h:15672/?a=b", "https://u:secret@h/#x=y", "u:secret@h=x"])
def test_a_url_without_a_name_is_not_quoted(tmp_path: Path, given: str) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(CONFIGURATION)
    with pytest.raises(UsageError) as found:
        check_brokers(path, [given], deliver=False, as_json=False)
    assert "secret" not in str(found.value)
    assert "--api is NAME=URL" in str(found.value)
