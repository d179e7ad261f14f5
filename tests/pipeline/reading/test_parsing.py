"""Every line is one row, whatever it holds: one run of Spark for all."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from agent.core.export_event import SCHEMA
from agent.pipeline.reading import parsing
from tests.pipeline.lines import line, of_standby

pytestmark = pytest.mark.timeout(1200)  # Spark on a busy machine

ONE = json.dumps(line(1, "running")).encode()
BRACES = json.dumps(line(2, "backoff", error='in {"a": {}} {} and },{')).encode()
LINES: list[tuple[bytes, str | None]] = [
    (ONE, None),
    (BRACES, None),
    (ONE + b"  \r", None),
    (json.dumps(line(3, "running") | {"more": [{}, {"a": {}}, {}]}).encode(), None),
    (json.dumps(line(4, "running") | {"schema": SCHEMA + 1, "forwarded": {"all": [1]}}).encode(), parsing.LATER),
    (json.dumps(of_standby(5, "in_step")).encode(), None),
    (json.dumps(of_standby(6, "running")).encode(), parsing.INCOMPLETE),
    (json.dumps(line(7, "in_step")).encode(), parsing.INCOMPLETE),
    (b"[]", parsing.MALFORMED),
    (b"{}", parsing.INCOMPLETE),
    (b"null", parsing.MALFORMED),
    (b"\x00" * 9, parsing.MALFORMED),
    (ONE + BRACES, parsing.MALFORMED),
    (ONE + b" " + ONE, parsing.MALFORMED),
    (ONE + b"," + ONE, parsing.MALFORMED),
    (b"[" + ONE + b"]", parsing.MALFORMED),
    (b"[" + ONE + b"," + ONE + b"]", parsing.MALFORMED),
    (b'{"schema": 1, "error": "\xff\xfe"', parsing.MALFORMED),
    (ONE.replace(b'"l"', b'"\xff\xfe"'), parsing.MALFORMED),
]


def test_a_line_is_a_row(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "a-1.jsonl"
    file.write_bytes(b"\n".join([text for text, _ in LINES]) + b"\n\n  \n")
    rows = parsing.read(spark, [str(file)]).select("why", fn.hex("line").alias("line")).collect()
    assert [row["why"] for row in rows] == [why for _, why in LINES]
    # Other programs refuse a table with bytes that are no UTF-8.
    assert all(bytes.fromhex(row["line"]).decode() for row in rows if row["why"])
