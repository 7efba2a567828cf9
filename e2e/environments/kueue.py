"""Kueue beside a control plane of processes: its definitions, its webhooks and its manager.

The API server calls the webhooks at a Service of type ExternalName, which names this machine, so
that the certificates that Kueue makes for the Service are verified as in a cluster.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import offline
from environments.controlplane import ControlPlane
from environments.processes import ChildProcess, free_port
from environments.waiting import until

NAMESPACE = "kueue-system"
SERVICE = "kueue-webhook-service"
SECRET = "kueue-webhook-server-cert"
START_SECONDS = 90
_CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
_GROUPS = {"batch", "kueue.x-k8s.io"}
"""Of the kinds whose webhooks are registered; the others are not served without their kinds."""

Object = dict[str, Any]


class Kueue:
    """The manager; use :meth:`start` once.

    Args:
        plane: a control plane that runs.
        classes: a resource name for quota -> the DeviceClasses whose claims count as it.
    """

    def __init__(self, plane: ControlPlane, classes: dict[str, list[str]] | None = None) -> None:
        self.plane = plane
        self.files = offline.ensure_kueue()
        self._classes = classes or {}
        self._port, self._health = free_port(), free_port()
        self._keys = plane.folder / "kueue-keys"

    def start(self) -> ChildProcess:
        """Install and start it; returns when the webhooks answer."""
        kubectl = self.plane.kubectl
        kubectl("create", "namespace", NAMESPACE)
        kubectl("apply", "--server-side", "-f", "-", stdin=self._manifests())
        config = self.plane.folder / "kueue.json"
        config.write_text(json.dumps(self._configuration()))
        argv: list[str | Path] = [self.files.manager, f"--config={config}", "--zap-log-level=2"]
        process = self.plane.start_program("kueue", argv, KUBECONFIG=str(self.plane.kubeconfig))
        until("Kueue has made its keys", lambda: self._write_keys(process), seconds=START_SECONDS)
        until("Kueue answers", lambda: self._answers(process), seconds=START_SECONDS)
        return process

    def _configuration(self) -> Object:
        mappings = [{"name": name, "deviceClassNames": of} for name, of in self._classes.items()]
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._port, "certDir": str(self._keys)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {
                "enable": True,
                "webhookServiceName": SERVICE,
                "webhookSecretName": SECRET,
            },
            "integrations": {"frameworks": ["batch/job"]},
            "featureGates": {
                "VisibilityOnDemand": False,
                "DynamicResourceAllocation": bool(self._classes),
            },
            **({"resources": {"deviceClassMappings": mappings}} if mappings else {}),
        }

    def _manifests(self) -> str:
        metadata = {"namespace": NAMESPACE}
        objects: list[Object] = [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": SERVICE, **metadata},
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            },
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, **metadata}},
            *self._definitions(),
            *self._webhooks(),
        ]
        return "\n---\n".join(map(json.dumps, objects))

    def _definitions(self) -> Iterator[Object]:
        service = {"name": SERVICE, "namespace": NAMESPACE, "port": self._port, "path": "/convert"}
        webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
        for path in sorted(self.files.definitions.glob("*.yaml")):
            for item in _parsed(path):
                if item["spec"]["names"]["plural"] in _CONVERTED:
                    item["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
                yield item

    def _webhooks(self) -> Iterator[Object]:
        for item in _parsed(self.files.webhooks):
            item["metadata"]["name"] = f"kueue-{item['metadata']['name']}"
            item["webhooks"] = [
                hook for hook in item["webhooks"] if _GROUPS & set(hook["rules"][0]["apiGroups"])
            ]
            for hook in item["webhooks"]:
                service = hook["clientConfig"]["service"]
                service |= {"name": SERVICE, "namespace": NAMESPACE, "port": self._port}
            yield item

    def _write_keys(self, process: ChildProcess) -> bool:
        """What kubelet does for a pod with the Secret as a volume."""
        process.demand_alive()
        data = self.plane.kubectl.json("get", "secret", SECRET, "-n", NAMESPACE).get("data", {})
        if "tls.crt" not in data:
            return False
        self._keys.mkdir(mode=0o700, exist_ok=True)
        for name, text in data.items():
            (self._keys / name).write_bytes(base64.b64decode(text))
        return True

    def _answers(self, process: ChildProcess) -> bool:
        """A flavor can be created: the webhook of its kind is called for it."""
        process.demand_alive()
        flavor = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ResourceFlavor",
            "metadata": {"name": "probe"},
        }
        words = ("apply", "--dry-run=server", "-f", "-")
        return self.plane.kubectl.attempt(*words, stdin=json.dumps(flavor)).returncode == 0


def _parsed(path: Path) -> Iterator[Object]:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    yield from yaml.load_all(path.read_text(), loader)
