"""The rules made from an objectives file, evaluated by Prometheus's own tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from agent.errors import ConfigurationError
from agent.pipeline.objectives import Objective, parse_objectives, prometheus_rules
from tests.deploy.test_alerts import promtool

OBJECTIVES: Final = (Objective("up", 99.9), Objective("prompt", 99.0, 7, 7.0))
BOUNDS: Final = (0.1, 5.0, 10.0)
LINK: Final = 'kind="exchange",vhost="/",name="orders",upstream="eu-1",job="a",instance="{}"'
WHERE: Final = 'group="dc2", kind="exchange", name="orders", upstream="eu-1", vhost="/"'


def state(name: str, values: str, instance: str = "one") -> dict[str, str]:
    return {"series": f'federation_agent_link_state{{{LINK.format(instance)},state="{name}"}}', "values": values}


def info(instance: str = "one") -> dict[str, str]:
    labels = f'version="1",agent="{instance}",group="dc2",job="a",instance="{instance}"'
    return {"series": f"federation_agent_info{{{labels}}}", "values": "1x1500"}


def evaluate(tmp_path: Path, series: list[dict[str, str]], **checks: Any) -> None:
    (tmp_path / "rules.yml").write_text(prometheus_rules(OBJECTIVES, BOUNDS, source="objectives.yaml"))
    case = {"interval": "30s", "input_series": series, **checks}
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "30s", "tests": [case]}
    (tmp_path / "cases.yml").write_text(yaml.safe_dump(document))
    promtool("check", "rules", tmp_path / "rules.yml")
    promtool("test", "rules", tmp_path / "cases.yml")


def firing(minute: int, *windows: str, objective: str = "up") -> dict[str, Any]:
    alerts = [
        {
            "exp_labels": {
                "alertname": "FederationObjectiveBurns", "severity": "warning" if window == "3d" else "critical",
                "objective": objective, "window": window, "group": "dc2", "kind": "exchange", "vhost": "/",
                "name": "orders", "upstream": "eu-1",
            },
        }
        for window in windows
    ]  # fmt: skip
    return {"eval_time": f"{minute}m", "alertname": "FederationObjectiveBurns", "exp_alerts": alerts}


def without_texts(tmp_path: Path) -> None:
    """Labels only are compared."""
    rules = yaml.safe_load((tmp_path / "rules.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("annotations", None)
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))


def alarms(tmp_path: Path, series: list[dict[str, str]], *expected: dict[str, Any]) -> None:
    (tmp_path / "rules.yml").write_text(prometheus_rules(OBJECTIVES, BOUNDS, source="objectives.yaml"))
    without_texts(tmp_path)
    case = {"interval": "1m", "input_series": series, "alert_rule_test": [*expected]}
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "cases.yml").write_text(yaml.safe_dump(document))
    promtool("test", "rules", tmp_path / "cases.yml")


def test_the_share_of_time_is_that_of_the_report(tmp_path: Path) -> None:
    """Ten minutes of an hour down, as `slo` would have it, within 1 %; a pause counts for nothing."""
    share = 1 - 101 / 121  # both ends of a range count
    assert share == pytest.approx(10 / 60, rel=0.01)
    series = [
        info(),
        state("running", "1x119 0x19 1x99 0x199"),
        state("backoff", "0x119 1x19 0x99 0x199"),
        state("paused", "0x119 0x19 0x99 1x199"),
    ]
    expected = [{"labels": f"link:federation_agent_bad_time:ratio1h{{{WHERE}}}", "value": share}]
    query = {"expr": "link:federation_agent_bad_time:ratio1h", "eval_time": "119m30s", "exp_samples": expected}
    paused = query | {"eval_time": "200m", "exp_samples": []}
    evaluate(tmp_path, series, promql_expr_test=[query, paused])


def test_an_outage_burns_the_budget_and_a_takeover_does_not(tmp_path: Path) -> None:
    outage = [info(), state("running", "1x59 0x240"), state("backoff", "0x59 1x240")]
    # After two minutes of an hour the hour's rate is 33. The link is too young for the windows of 3 d and 6 h.
    alarms(tmp_path, outage, firing(59), firing(63, "1h", "6h"))
    taken_over = [
        info(), info("two"), state("running", "1x59 0x240"), state("standby", "0x59 1x240"),
        state("running", "0x59 1x240", "two"), state("standby", "1x59 0x240", "two"),
    ]  # fmt: skip
    alarms(tmp_path, taken_over, firing(63), firing(200))


def test_a_new_link_has_too_little_to_judge_by(tmp_path: Path) -> None:
    starting = [info(), state("running", "_x59 0x1 1x200"), state("starting", "_x59 1x1 0x200")]
    alarms(tmp_path, starting, firing(61), firing(63))


@pytest.mark.parametrize(("each", "windows"), [(1, ()), (10, ("1h", "6h", "3d"))])
def test_few_late_messages_are_no_alarm(tmp_path: Path, each: int, windows: tuple[str, ...]) -> None:
    """All of them late: `within` is 7 seconds, and what is measured below that is 5."""
    counted = [
        {"series": f'federation_agent_transfer_seconds_bucket{{{LINK.format("one")},le="{bound}"}}', "values": values}
        for bound, values in (("5.0", "0x60"), ("10.0", f"0+{each}x60"))
    ]
    every = {"series": f"federation_agent_transfer_seconds_count{{{LINK.format('one')}}}", "values": f"0+{each}x60"}
    alarms(tmp_path, [info(), *counted, every], firing(60, *windows, objective="prompt"))


def test_what_is_shorter_than_any_measured_time_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"o.yaml: objective 'quick': within: give at least 0.1"):
        prometheus_rules([Objective("quick", 99.0, 7, 0.01)], BOUNDS, source="o.yaml")


OPENSLO: Final = """
apiVersion: openslo/v1
kind: SLO
metadata: {name: up}
spec:
  service: federation
  indicatorRef: link-availability
  budgetingMethod: Occurrences
  timeWindow: [{duration: 30d, isRolling: true}]
  objectives: [{target: 0.999}]
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: prompt}
spec:
  indicatorRef: transfer-seconds
  budgetingMethod: Occurrences
  timeWindow: [{duration: 1w, isRolling: true}]
  objectives: [{op: lte, value: 7, targetPercent: 99}]
"""


def test_openslo_documents_are_the_same_objectives() -> None:
    assert parse_objectives(OPENSLO, source="slo.yaml") == OBJECTIVES


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        ("  service: federation", "  alertPolicies: []", "slo.yaml:6:3: alertPolicies: the report can't express this"),
        ("Occurrences", "Timeslices", "slo.yaml:8:20: budgetingMethod: the report judges Occurrences only"),
        ("30d", "1M", "slo.yaml:9:27: duration: give days or weeks"),
        ("link-availability", "latency", "slo.yaml:7:17: indicatorRef: give link-availability or transfer-seconds"),
        ("{target: 0.999}", "{}", "slo.yaml:10:16: give one of target"),
        ("op: lte", "op: gt", "slo.yaml:19:21: op: give lte"),
        ("kind: SLO", "kind: Service", "slo.yaml:3:7: kind: the report reads SLO only"),
        ("{name: prompt}", "{name: up}", "slo.yaml:12:1: objective 'up' is there twice"),
        ("30d, isRolling: true", "30d", "slo.yaml:9:16: isRolling"),
        ("value: 7, ", "", "slo.yaml:19:16: value: give seconds above 0"),
        ("value: 7", "value: .nan", "slo.yaml:19:33: value: give seconds above 0"),
        ("{target: 0.999}", "{target: 99.9}", "slo.yaml:10:16: give a target above 0 and below 1"),
        ("targetPercent: 99", "targetPercent: nan", "slo.yaml:19:16: give a target above 0 and below 1"),
        ("  service: federation", "  ? [service]", "slo.yaml:6:5: give a name as the key"),
        ("  service: federation", "  budgetingMethod: x", "slo.yaml:8:3: budgetingMethod: is there twice"),
    ],
)
def test_what_openslo_says_beyond_that_is_an_error_with_its_place(before: str, after: str, where: str) -> None:
    with pytest.raises(ConfigurationError) as failed:
        parse_objectives(OPENSLO.replace(before, after, 1), source="slo.yaml")
    assert where in str(failed.value)
