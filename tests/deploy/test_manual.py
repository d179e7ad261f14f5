"""The man pages of the Debian package name the commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.lib.release import manual
from tests.acceptance.command import ROOT


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """By the command; without what keeps roff from reading a dash as a hyphen."""
    monkeypatch.chdir(ROOT)
    return {Path(path).stem: text.replace("\\-", "-") for path, text in manual.pages(0)}


def synopsis(page: str) -> str:
    return page.partition(".SH SYNOPSIS\n")[2].partition("\n")[0]


def test_a_synopsis_calls_its_command_by_its_words(pages: dict[str, str]) -> None:
    of_groups = [name for name in pages if re.search("-(migrate|quarantine|standby)-", name)]
    assert len(of_groups) == 14
    for name in of_groups:
        _, group, command = name.rsplit("-", 2)
        assert synopsis(pages[name]).startswith(f"\\fBfederation-agent {group} {command}\\fR [")
    assert synopsis(pages["federation-agent-import-legacy"]).startswith("\\fBfederation-agent import-legacy\\fR [")


def test_a_summary_is_the_whole_first_sentence_and_the_description_begins_with_the_next(pages: dict[str, str]) -> None:
    page = pages["federation-agent-migrate-copy"]
    summary = "Make vhosts, policies, exchanges, queues and bindings at the target that it lacks"
    assert f"\nfederation-agent-migrate-copy - {summary}\n" in page
    assert "\n.SH DESCRIPTION\n.PP\nDeletes nothing, and copies no users or permissions.\n.PP\nIt can be" in page
    assert f"\n.TP\n\\fBcopy\\fR\n{summary}.\n" in pages["federation-agent-migrate"]
