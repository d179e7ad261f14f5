"""What `check` takes on its command line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from agent.cli.check import check_brokers
from agent.errors import UsageError
from tests.acceptance.command import ROOT

CONFIGURATION = "downstream: {uri: 'amqp://127.0.0.1:1'}\n"


@pytest.mark.parametrize("given", ["http://u:secret@h:15672/?a=b", "https://u:secret@h/#x=y", "u:secret@h=x"])
def test_a_url_without_a_name_is_not_quoted(tmp_path: Path, given: str) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(CONFIGURATION)
    with pytest.raises(UsageError) as found:
        check_brokers(path, [given], deliver=False, as_json=False)
    assert "secret" not in str(found.value)
    assert "--api is NAME=URL" in str(found.value)


def test_who_lacks_the_client_of_deliver_is_told_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aio_pika", None)
    monkeypatch.delitem(sys.modules, "agent.check.trial", raising=False)
    path = tmp_path / "agent.yaml"
    path.write_text(CONFIGURATION)
    with pytest.raises(UsageError, match="aio-pika") as found:
        check_brokers(path, [], deliver=True, as_json=False)
    [lock] = re.findall(r"locks/\S+", str(found.value))
    assert "\naio-pika==" in (ROOT / lock).read_text()
    assert "docs/install.md" in str(found.value) and (ROOT / "docs/install.md").exists()
