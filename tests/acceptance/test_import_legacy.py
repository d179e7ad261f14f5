"""`import-legacy` as a user runs it: what it prints is a configuration."""

from pathlib import Path

import pytest

from tests.acceptance.command import ROOT, federation_agent

VERBOSE = ROOT / "tests" / "unit" / "definitions" / "legacy" / "verbose.config"
SECRETS = {"DOWNSTREAM_PASSWORD": "sentinel", "NEAR_SITE_PASSWORD": "sentinel", "NEAR_SITE_KEY_PASSWORD": "sentinel"}


def test_the_manuals_verbose_example_becomes_a_valid_configuration(tmp_path: Path) -> None:
    done = federation_agent("import-legacy", VERBOSE)
    assert (done.status, done.err) == (0, "")
    assert "never shown" not in done.out
    (tmp_path / "agent.yaml").write_text(done.out)
    judged = federation_agent("validate", "-c", "agent.yaml", cwd=tmp_path, **SECRETS)
    assert judged.status == 0
    assert judged.out.startswith("agent.yaml: valid (upstreams: ")
    assert all(": warning: " in line for line in judged.errors)
    assert "sentinel" not in judged.out + judged.err


def test_without_its_secrets_it_still_is_one(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(federation_agent("import-legacy", VERBOSE).out)
    judged = federation_agent("validate", "-c", "agent.yaml", cwd=tmp_path)
    assert judged.status == 0
    assert "the environment variable isn't set" in judged.err


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("[{rabbitmq_federation,\n  [{exchanges, oops}]}].", "2:16", "write a list"),
        ("[{rabbitmq_federation, [}].", "1:25", ""),
        ("[{rabbitmq_federation, [\n\n", "1:24", ""),
        ("[{rabbit, []}].", "1:1", "there is no {rabbitmq_federation, […]}"),
    ],
)
def test_a_broken_file_is_told_with_line_and_column(tmp_path: Path, text: str, place: str, words: str) -> None:
    (tmp_path / "rabbitmq.config").write_text(text)
    done = federation_agent("import-legacy", "rabbitmq.config", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert len(done.errors) == 1
    assert done.err.startswith(f"rabbitmq.config:{place}: ")
    assert words in done.err


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    connections = '{connections, [{"a", [{host, 1}]}, {"b", [{port, "x"}]}]}'
    (tmp_path / "rabbitmq.config").write_text(f"[{{rabbitmq_federation, [{connections}]}}].")
    done = federation_agent("import-legacy", "rabbitmq.config", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert len(done.errors) >= 2
    assert all(line.startswith("rabbitmq.config:1:") for line in done.errors)


def test_a_missing_file(tmp_path: Path) -> None:
    done = federation_agent("import-legacy", "rabbitmq.config", cwd=tmp_path)
    assert (done.status, done.out, done.err) == (2, "", "rabbitmq.config:1:1: there is no such file\n")
