"""deploy/: what can be checked of it on this machine; a real Prometheus scrapes a real node."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from real_broker import RealBroker, clean_environment
from semel.config.broker_settings import BROKER_SETTINGS
from semel.config.load import variable_of
from semel.metrics.declaration import Type
from semel.metrics.node_metrics import SECTIONS
from semel.sync import Producer

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
_METRIC = re.compile(r"\b(?:semel|kafka)_\w+")
_HISTOGRAM_SUFFIXES = ("_bucket", "_count", "_sum")


def needed(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def shown_names() -> set[str]:
    names: set[str] = set()
    for metric in (metric for section in SECTIONS.values() for metric in section):
        if metric.type is Type.HISTOGRAM:
            names |= {metric.name + suffix for suffix in _HISTOGRAM_SUFFIXES}
        else:
            names.add(metric.shown_name)
    return names


def expressions() -> list[str]:
    dashboard = json.loads((DEPLOY / "grafana/semel.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    return found + re.findall(r"expr: (.*(?:\n {10}.*)*)", (PROMETHEUS / "alerts.yml").read_text())


def test_dashboard_and_alerts_ask_for_metrics_that_there_are() -> None:
    asked = {name for expression in expressions() for name in _METRIC.findall(expression)}
    assert len(asked) > 25
    assert asked - shown_names() == set()


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads((DEPLOY / "grafana/semel.json").read_text())["panels"]
    places = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places)
    assert max(x for x, _ in places) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_alerts_fire_when_they_should() -> None:
    promtool = needed("promtool")
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run([promtool, *command], cwd=PROMETHEUS, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    analyze = needed("systemd-analyze")
    text = (DEPLOY / "systemd/semel.service").read_text()
    assert "/opt/semel/bin/semel" in text
    unit = tmp_path / "semel.service"
    unit.write_text(text.replace("ExecStart=/opt/semel/bin/semel", f"ExecStart={sys.executable}"))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", ["docker/Dockerfile", "kubernetes/semel.yaml"])
def test_variables_of_containers_are_settings(path: str) -> None:
    text = (DEPLOY / path).read_text()
    known = {variable_of(name): setting for name, setting in BROKER_SETTINGS.items()}
    found = dict(re.findall(r"(SEMEL_[A-Z_]+)(?:=|, value: )\"?([^\s\"}]+)", text))
    assert len(found) == 4
    for name, value in found.items():
        known[name].parse(value)


def test_manifests_for_kubernetes_fit_together() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    by_kind = {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes/semel.yaml").read_text())}
    stateful, service = by_kind["StatefulSet"]["spec"], by_kind["Service"]["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    assert labels == stateful["selector"]["matchLabels"] == service["selector"]
    (container,) = stateful["template"]["spec"]["containers"]
    mounted = {one["name"] for one in container["volumeMounts"]}
    claimed = {one["metadata"]["name"] for one in stateful["volumeClaimTemplates"]}
    assert mounted == claimed | {one["name"] for one in stateful["template"]["spec"]["volumes"]}
    assert {one["port"] for one in service["ports"]} == {one["containerPort"] for one in container["ports"]}


# -- a real Prometheus


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class ContainedBroker(RealBroker):
    """As the image starts it: by variables, on every interface."""

    metrics_port = 0

    def command(self) -> list[str]:
        self.port = self.port or free_port()
        self.metrics_port = self.metrics_port or free_port()
        variables = clean_environment(
            SEMEL_LOG_DIR=str(self.data),
            SEMEL_LISTENERS=f"PLAINTEXT://:{self.port}",
            SEMEL_ADVERTISED_LISTENERS=f"PLAINTEXT://127.0.0.1:{self.port}",
            SEMEL_METRICS_LISTENER=f":{self.metrics_port}",
        )
        settings = [f"{name}={value}" for name, value in variables.items() if name.startswith("SEMEL_")]
        return ["env", *settings, self.python, "-m", "semel.cli.main", "serve", "--insecure"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ContainedBroker]:
    broker = ContainedBroker(tmp_path)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


@pytest.fixture
def prometheus(broker: ContainedBroker, tmp_path: Path) -> Iterator[str]:
    """Its address; it scrapes the node twice a second, with the alerts of deploy/."""
    program, port = needed("prometheus"), free_port()
    text = (PROMETHEUS / "prometheus.yml").read_text().replace("localhost:9644", f"127.0.0.1:{broker.metrics_port}")
    config = tmp_path / "prometheus.yml"
    config.write_text(text.replace("15s", "500ms").replace("alerts.yml", str(PROMETHEUS / "alerts.yml")))
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'series'}"]
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def asked(prometheus: str, path: str, **query: str) -> Any:
    try:
        with urllib.request.urlopen(f"{prometheus}{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.load(answer)["data"]
    except OSError:
        return None


def until(prometheus: str, expression: str, expected: float) -> None:
    until_s = time.monotonic() + 60
    found = None
    while time.monotonic() < until_s:
        found = asked(prometheus, "/api/v1/query", query=expression)
        if found and found["result"] and float(found["result"][0]["value"][1]) == expected:
            return
        time.sleep(0.25)
    raise AssertionError(f"{expression} is {found}, and not {expected}")


def test_a_real_prometheus_scrapes_a_node_and_loads_its_alerts(broker: ContainedBroker, prometheus: str) -> None:
    with Producer(bootstrap_servers=broker.address) as producer:
        for _ in range(5):
            producer.send_and_wait("scraped", b"value")
    until(prometheus, "up", 1)
    until(prometheus, 'kafka_server_brokertopicmetrics_messagesin_total{topic="scraped"}', 5)
    until(prometheus, 'kafka_log_log_logendoffset{topic="scraped"}', 5)
    until(prometheus, "semel_request_seconds_bucket{request='Produce', le='+Inf'}", 5)
    (target,) = asked(prometheus, "/api/v1/targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    (group,) = asked(prometheus, "/api/v1/rules")["groups"]
    assert len(group["rules"]) == 14
    assert [rule["lastError"] for rule in group["rules"] if rule.get("lastError")] == []
    broker.kill()
    until(prometheus, "up", 0)
