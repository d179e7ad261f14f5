"""What a started program prints about itself is shown only if starting it fails."""

import subprocess
import sys

import pytest

from agent.pipeline.spark.quiet import quiet


def prints() -> None:
    subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('a warning')"], check=True)


def fails() -> None:
    with quiet():
        prints()
        raise LookupError


def test_output_is_kept_away(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet():
        prints()
    subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('shown')"], check=True)
    assert capfd.readouterr().err == "shown"


def test_output_is_shown_after_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LookupError):
        fails()
    assert capfd.readouterr().err == "a warning"
