"""Prometheus's rules: what fires when, and that there is something to read for whoever is woken."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from agent.amqp.failures import alarm_of
from agent.core.status.failure_kinds import CAUSES, outage_of
from agent.errors import FailureKind
from agent.status.metric_definitions import AGENT_METRICS, CERTIFICATE, INFO, LINK_METRICS, STUCK, TOKEN, MetricType
from tests.deploy.prometheus import DEPLOYED, ROOT

CASES: Final = Path(__file__).parent
OF_ALL: Final = ("alerts.yml", "day_alerts.yml", "expiry_alerts.yml")
"""Each alert is among these."""
GROUPS: Final[list[dict[str, Any]]] = yaml.safe_load((DEPLOYED / "rules/federation-agent.yml").read_text())["groups"]
RULES: Final = [rule for group in GROUPS for rule in group["rules"]]
ALERTS: Final = {rule["alert"]: rule for rule in RULES if "alert" in rule}
OF_GROUPS: Final = {"FederationDownstreamNotFlowing", "FederationUpstreamNotFlowing"}  # of agents, not of one of them
DASHBOARD: Final = ROOT / "deploy/grafana/dashboards/federation-agent.json"
OPERATIONS: Final = ROOT / "docs/operations.md"
OWN_METRIC: Final = re.compile(r"(?<![\w:])federation_agent_\w+|\w+:federation_agent_\w+:\w+")


def promtool(*arguments: str | Path) -> None:
    environment = os.environ | {"GOGC": "1000"}  # a fifth of its CPU is for memory that this machine has
    command = ["promtool", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "cases", [*OF_ALL, pytest.param("week_alerts.yml", marks=[pytest.mark.thorough, pytest.mark.timeout(1200)])]
)
def test_alerts_fire_when_they_should_and_only_then(cases: str) -> None:
    promtool("test", "rules", CASES / cases)


def test_prometheus_takes_configuration_and_rules(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("token")
    text = (DEPLOYED / "prometheus.yml").read_text().replace("/run/secrets/agent-token", str(tmp_path / "token"))
    (tmp_path / "prometheus.yml").write_text(text)
    (tmp_path / "rules").symlink_to(DEPLOYED / "rules")
    promtool("check", "config", tmp_path / "prometheus.yml")


def test_every_alert_is_seen_firing() -> None:
    cases = "".join((CASES / name).read_text() for name in OF_ALL)
    assert {name for name in ALERTS if f'alertname="{name}"' not in cases} == set()


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_tells_what_to_do(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert {"summary", "description", "runbook_url"} == alert["annotations"].keys() - {"page"}
    page = alert["annotations"].get("page", "")
    at, end = ("$at", "{{ end }}") if name in OF_GROUPS else ("$labels.instance", "")
    address = f'label "url" }}}}{{{{ else }}}}http://{{{{ {at} }}}}{{{{ end }}}}/#/'
    assert re.search(rf"{re.escape(address)}\S*{end}$", page) or name == "FederationAgentAbsent"  # it has no agent
    assert alert["for"]
    template = "{{ with $externalLabels.runbooks }}{{ . }}/{{ end }}"
    assert alert["annotations"]["runbook_url"].startswith(template)
    document, _, anchor = alert["annotations"]["runbook_url"].removeprefix(template).partition("#")
    assert ROOT / document == OPERATIONS
    headings = re.findall(r"^#+ (.*)$", OPERATIONS.read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert name in OPERATIONS.read_text()


def of_links() -> str:
    return "".join((CASES / name).read_text() for name in OF_ALL if name != "expiry_alerts.yml")


def test_annotations_name_labels_that_the_alert_has() -> None:
    fired: dict[str, set[str]] = {name: set() for name in ALERTS}
    for name, labels in re.findall(r'alertname="(\w+)"([^}]*)', of_links()):
        fired[name] |= set(re.findall(r'(\w+)="', labels))
    for name in ("FederationCertificateExpires", "FederationCertificateExpiresSoon", "FederationTokenExpires"):
        family = TOKEN if "Token" in name else CERTIFICATE
        fired[name] = {"instance", *family.labels}
    for name, alert in ALERTS.items():
        named = set(re.findall(r"\$labels\.(\w+)", json.dumps(alert["annotations"])))
        assert named <= fired[name], name


def told() -> set[str]:
    """The series that a scrape and the rules make."""
    families = (*LINK_METRICS, *AGENT_METRICS, CERTIFICATE, TOKEN, INFO, STUCK)
    suffixes = {MetricType.HISTOGRAM: ("_bucket", "_sum", "_count")}
    found = {family.name + suffix for family in families for suffix in suffixes.get(family.type, ("",))}
    return found | {rule["record"] for rule in RULES if "record" in rule}


def test_nothing_is_asked_that_nobody_tells() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    asked = [rule["expr"] for rule in RULES] + [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    assert {name for expression in asked for name in OWN_METRIC.findall(expression)} - told() == set()


def test_no_rule_is_recorded_for_nothing() -> None:
    def asked(record: str) -> str:
        return DASHBOARD.read_text() + "".join(rule["expr"] for rule in RULES if rule.get("record") != record)

    assert [rule["record"] for rule in RULES if "record" in rule and rule["record"] not in asked(rule["record"])] == []


def test_the_rules_know_what_an_agent_calls_a_block_and_a_lost_connection() -> None:
    asked = {
        frozenset(pattern.split("|"))
        for rule in RULES
        for pattern in re.findall(r'trouble[=!]~"([^"]*)"', rule["expr"])
    }
    blocks = {alarm_of(reason) for reason in ("low on memory", "low on disk", "")}
    assert asked == {frozenset(blocks), frozenset(each for each in CAUSES if outage_of(each) is FailureKind.LOST)}


def test_the_example_of_alertmanager_makes_one_notification_of_the_replicas_of_a_group_for_each_trouble() -> None:
    """What joins a notification that somebody has been called for calls nobody."""
    route = yaml.safe_load((DEPLOYED / "alertmanager.yml").read_text())["route"]
    assert route["group_by"] == ["job", "group", "trouble"]
    assert all("group_by" not in inner for inner in route["routes"])
    of_links = [rule for rule in GROUPS[1]["rules"] if rule["alert"] not in OF_GROUPS]
    assert all("group_left (group) instance:federation_agent_group:info" in rule["expr"] for rule in of_links)


def test_the_example_of_alertmanager_wakes_somebody_for_what_is_critical_whatever_its_labels() -> None:
    [night] = yaml.safe_load((DEPLOYED / "alertmanager.yml").read_text())["route"]["routes"]
    matchers = [re.findall(r'^(\w+)=~?"(.*)"$', matcher)[0] for matcher in night["matchers"]]
    fired = [
        dict(re.findall(r'(\w+)="([^"]*)"', labels)) for labels in re.findall(r"ALERTS\{(alertname=[^}]*)}", of_links())
    ]
    assert fired
    for alert in fired:
        wakes = all(re.fullmatch(pattern, alert.get(label, "")) for label, pattern in matchers)
        assert wakes == (alert["severity"] == "critical"), alert


def test_the_example_of_alertmanager_names_alerts_and_labels_that_there_are() -> None:
    example = yaml.safe_load((DEPLOYED / "alertmanager.yml").read_text())
    receivers = {receiver["name"] for receiver in example["receivers"]}
    assert {example["route"]["receiver"], *(route["receiver"] for route in example["route"]["routes"])} <= receivers
    for rule in example["inhibit_rules"]:
        for matchers in (rule["source_matchers"], rule["target_matchers"]):
            [pattern] = re.findall(r'alertname=~?"(.*)"', matchers[0])
            assert all(any(re.fullmatch(part, name) for name in ALERTS) for part in pattern.split("|"))
    assert {label for rule in example["inhibit_rules"] for label in rule["equal"]} <= {
        "job",
        "instance",
        "group",
    }
