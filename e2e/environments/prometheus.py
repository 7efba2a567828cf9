"""A real Prometheus on this machine that scrapes a cluster's stack, with the chart's own rules.

Its configuration is the one that the documentation gives, but for how pods are found and reached.
Debian's Prometheus cannot discover pods in Kubernetes, so they are listed here, with the labels
that it would have seen. Their ports are forwarded to this machine, and encryption goes from
Prometheus to the pod: it trusts the authority of the chart's secret. To a
kube-scheduler, which authenticates clients, it presents the kubeconfig's certificate.
"""

import base64
import json
import re
import shutil
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import yaml

import offline
from environments.kubectl import Kubectl, Object
from environments.processes import ChildProcess, free_port
from host.waiting import until

START_SECONDS = 300
ASK_SECONDS = 30
EVERY = "2s"
SECRET = "gpushare-metrics"
ROOT = Path(__file__).parents[2]
RULES = ROOT / "helm" / "gpushare" / "alerts" / "gpushare.yaml"
CONFIGURATION = ROOT / "docs" / "examples" / "prometheus.yaml"
_META = "__meta_kubernetes"


class Sample(msgspec.Struct, frozen=True):
    """One series of an answer."""

    labels: dict[str, str]
    value: float


def impatient(rules: str) -> str:
    """The rules with every `for:` taken out: a test cannot wait as long as an operator should."""
    return re.sub(r"^ +for: \w+\n", "", rules, flags=re.MULTILINE)


class Prometheus:
    """One Prometheus; start it, ask it, stop it.

    Args:
        kubectl: of the cluster.
        namespace: of the stack.
    """

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self._folder = Path(tempfile.mkdtemp(prefix="gpushare-prometheus-"))
        self._processes: list[ChildProcess] = []
        self._forwards: list[ChildProcess] = []
        self._url = f"http://127.0.0.1:{free_port()}"

    def start(self) -> None:
        """Bring it up; returns when it has loaded the rules and answers.

        Raises:
            SetupError: the program is not here and cannot be fetched.
        """
        program = offline.ensure_prometheus().prometheus
        (self._folder / "rules.yaml").write_text(impatient(RULES.read_text()))
        (self._folder / "prometheus.yaml").write_text(json.dumps(self._configuration()))
        argv: list[str | Path] = [
            program,
            f"--config.file={self._folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={self._url.removeprefix('http://')}",
            "--log.level=warn",
        ]
        server = self._run("prometheus", argv)
        until("Prometheus is ready", lambda: self._ready(server), seconds=START_SECONDS)

    def stop(self) -> None:
        """End all that was started and remove all files."""
        for process in reversed(self._processes):
            process.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def query(self, expression: str) -> list[Sample]:
        """What a PromQL expression is now."""
        answer = self._get("query", query=expression)
        return [Sample(each["metric"], float(each["value"][1])) for each in answer["result"]]

    def value(self, expression: str) -> float | None:
        """The one value of an expression; None while there is none."""
        found = self.query(expression)
        assert len(found) <= 1, f"{expression} is not one series: {found}"
        return found[0].value if found else None

    def firing(self, name: str, **labels: str) -> Object | None:
        """The alert of this name that fires with these labels, annotations and all."""
        for alert in self._get("alerts")["alerts"]:
            wanted = {"alertname": name, **labels}
            if alert["state"] == "firing" and wanted.items() <= alert["labels"].items():
                found: Object = alert
                return found
        return None

    def rules(self) -> list[Object]:
        """All rules as Prometheus has them, with their health."""
        groups = self._get("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def troubles(self) -> list[str]:
        """Targets that do not answer, and why; that there are none yet is one."""
        found = self._get("targets")["activeTargets"]
        if not found:
            return ["no target was taken in yet"]
        return [
            f"{target['labels']}: {target['health']} {target['lastError']}"
            for target in found
            if target["health"] != "up"
        ]

    def addresses(self) -> list[str]:
        """URLs of all targets, as Prometheus scrapes them."""
        return [target["scrapeUrl"] for target in self._get("targets")["activeTargets"]]

    def _configuration(self) -> Object:
        """The documented one, with a way to the pods from here."""
        user = yaml.safe_load(self._kubectl.kubeconfig.read_text())["users"][0]["user"]
        shown = {
            "cert_file": self._file("client.crt", user["client-certificate-data"]),
            "key_file": self._file("client.key", user["client-key-data"]),
        }
        found: Object = yaml.safe_load(CONFIGURATION.read_text())
        found["global"] = {"scrape_interval": EVERY, "evaluation_interval": EVERY}
        found["rule_files"] = [str(self._folder / "rules.yaml")]
        pods, scheduler = found["scrape_configs"]
        believed = {**pods["tls_config"], "ca_file": self._authority()}
        targets = list(self._forwarded())
        for job in (pods, scheduler):
            del job["kubernetes_sd_configs"]
            job |= {"static_configs": targets, "tls_config": believed}
        del scheduler["authorization"]
        scheduler["tls_config"] = {**believed, **shown}
        return found

    def _authority(self) -> str:
        """A file with the authority that the chart made for metrics, read as the page describes."""
        secret = self._kubectl.json("get", "secret", SECRET, "-n", self._namespace)
        return self._file("ca.crt", secret["data"]["ca.crt"])

    def _forwarded(self) -> Iterator[Object]:
        """Every port of every pod of the stack, forwarded to this machine."""
        pods = groupby(self._ports(), key=itemgetter(f"{_META}_pod_name"))
        for name, ports in pods:
            here = {f"127.0.0.1:{free_port()}": labels for labels in ports}
            pairs = (
                f"{address.rpartition(':')[2]}:{labels[f'{_META}_pod_container_port_number']}"
                for address, labels in here.items()
            )
            words = ("port-forward", f"pod/{name}", *pairs, "-n", self._namespace)
            kubeconfig = ("--kubeconfig", self._kubectl.kubeconfig)
            argv: list[str | Path] = [self._kubectl.binary, *words, *kubeconfig]
            self._forwards.append(self._run(f"forward-{name}", argv))
            yield from ({"targets": [each], "labels": labels} for each, labels in here.items())

    def _ports(self) -> Iterator[dict[str, str]]:
        """Labels that Prometheus gives to each port of the stack's pods."""
        for pod in self._kubectl.items("pods", "-n", self._namespace):
            meta = pod["metadata"]
            for container in pod["spec"]["containers"]:
                for port in container.get("ports", ()):
                    yield {
                        "instance": meta["name"],
                        f"{_META}_namespace": meta["namespace"],
                        f"{_META}_pod_name": meta["name"],
                        f"{_META}_pod_node_name": pod["spec"].get("nodeName", ""),
                        f"{_META}_pod_container_name": container["name"],
                        f"{_META}_pod_container_port_name": port.get("name", ""),
                        f"{_META}_pod_container_port_number": str(port["containerPort"]),
                        **_labels(meta.get("labels", {})),
                    }

    def _file(self, name: str, encoded: str) -> str:
        """A file of the kubeconfig's, for nobody else to read."""
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(encoded))
        return str(path)

    def _run(self, name: str, argv: Sequence[str | Path]) -> ChildProcess:
        process = ChildProcess(name, argv, folder=self._folder)
        self._processes.append(process)
        return process

    def _ready(self, server: ChildProcess) -> bool:
        server.demand_alive()
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=ASK_SECONDS) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    def _get(self, path: str, **query: str) -> Any:
        for forward in self._forwards:
            forward.revive()
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=ASK_SECONDS) as answer:
            return json.load(answer)["data"]


def _labels(found: Mapping[str, str]) -> dict[str, str]:
    """Labels of a pod as Prometheus spells them."""
    return {f"{_META}_pod_label_{re.sub(r'[^a-zA-Z0-9_]', '_', k)}": v for k, v in found.items()}
