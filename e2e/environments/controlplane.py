"""A real control plane without containers: etcd, kube-apiserver and kube-scheduler on loopback.

The place for what a kind cluster is too small or too slow for: thousands of nodes, races, faults
and figures. Nodes are objects only (:mod:`environments.fakenodes`); what a kubelet would do to a
bound pod is done by :mod:`environments.fakenodeagent`.
"""

import json
import os
import secrets
import shutil
import ssl
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import offline
from environments.kubectl import Kubectl
from environments.processes import ChildProcess, free_port
from host.errors import SetupError
from host.featuregates import feature_gates
from host.waiting import until

START_SECONDS = 300
SCHEDULER_NAME = "gpushare-scheduler"
BURST_SUFFIX = "-burst"
"""Of the name of a scheduler's second profile, as in the chart."""
PARTS = ("etcd", "kube-apiserver")

# Without these, nodes come up tainted and pods want service accounts: matters of a kubelet and a
# controller manager, which are not here.
_NOT_HERE = "ServiceAccount,TaintNodesByCondition"


class ControlPlane:
    """etcd and the API server, and any number of schedulers.

    Args:
        version: of Kubernetes; the chosen one by default.
        features: feature gates that are switched on in the API server and the schedulers.
        apis: API versions that are off by default, and served nevertheless.
        pki: folder of certificates as kubeadm lays them, for nodes that join with their kubelets;
            by default the API server makes a certificate for itself, and nodes are objects only.

    Attributes:
        version: of Kubernetes.
        port: of the API server.
        url: of the API server, ``https://127.0.0.1:<port>``.
        authority: file of the certificate by which clients verify the API server.
        token: of a user who may do anything.
        kubeconfig: for programs that want a file.
    """

    def __init__(
        self,
        version: str | None = None,
        *,
        features: Sequence[str] = (),
        apis: Sequence[str] = (),
        pki: Path | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gpushare-control-plane-"))
        self.token = secrets.token_hex(16)
        self._pki = pki
        self.authority = pki / "ca.crt" if pki else self.folder / "apiserver" / "apiserver.crt"
        self.kubeconfig = self.folder / "kubeconfig"
        self.version = version or offline.chosen_version()
        gates = {} if self._oldest else feature_gates()
        chosen = {**gates, **dict.fromkeys(features, True)}
        self._features = [f"--feature-gates={k}={str(on).lower()}" for k, on in chosen.items()]
        self._apis = [f"--runtime-config={name}=true" for name in apis]
        if gates:
            self._apis.append("--runtime-config=api/all=true")
        self._programs = offline.ensure_programs(self.version)
        self.port = free_port()
        self._etcd_url, self._peer_url = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.url = f"https://127.0.0.1:{self.port}"
        self.processes: list[ChildProcess] = []
        self._starting = threading.Lock()
        self._stopped = False
        self.kubectl = Kubectl(self._programs / "kubectl", self.kubeconfig)

    def start(self) -> None:
        """Bring up etcd and the API server; returns when the latter is ready."""
        self._etcd(self.folder / "etcd")
        self._keys()
        self._write_kubeconfig()
        self._api_server()

    def pids(self) -> dict[str, int]:
        """Process ids of etcd and the API server, by name."""
        return {process.name: process.pid for process in self.processes if process.name in PARTS}

    def stop(self) -> None:
        """End every process, last first, and remove all files; none is started afterwards.

        Another thread may be starting one: a coroutine that awaits it is cancelled, the thread is
        not.
        """
        with self._starting:
            self._stopped = True
        for process in reversed(self.processes):
            process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def save(self, file: Path) -> None:
        """Back etcd up into a new file."""
        endpoint = f"--endpoints={self._etcd_url}"
        self._etcd_tool("etcdctl", endpoint, "snapshot", "save", file)

    def restore(self, file: Path) -> None:
        """Go back to a backup as Kubernetes documents it: nothing runs while etcd is restored.

        Returns when the API server is ready again, at the same address.
        """
        folder = self.folder / f"etcd-{len(self.processes)}"
        for process in reversed(self.processes):
            if process.name in PARTS and process.alive():
                process.stop()
        peers = [f"--initial-cluster=default={self._peer_url}"]
        peers += [f"--initial-advertise-peer-urls={self._peer_url}"]
        # From etcd 3.6 on a program of its own restores.
        restorer = "etcdctl" if self._oldest else "etcdutl"
        self._etcd_tool(restorer, "snapshot", "restore", file, f"--data-dir={folder}", *peers)
        self._etcd(folder)
        self._api_server()

    def scheduler(
        self,
        extender_url: str | None,
        *,
        name: str = SCHEDULER_NAME,
        verbs: Sequence[str] = ("filter", "prioritize", "bind", "preempt"),
        percentage: int = 0,
        like: Mapping[str, Any] | None = None,
    ) -> ChildProcess:
        """Start a kube-scheduler for pods that name it.

        Args:
            extender_url: with the prefix, e.g. ``http://127.0.0.1:39999/gpushare-scheduler``; None
                for a scheduler without extender.
            name: of the scheduler's first profile.
            verbs: of the extender, those it is called for.
            percentage: of the nodes that are evaluated for a pod; 0 is the scheduler's default.
            like: a configuration whose API version, profiles and percentage are used.
        """
        config = self.folder / f"{name}.json"
        found = self._scheduler_config(name, extender_url, verbs)
        found["percentageOfNodesToScore"] = percentage
        config.write_text(json.dumps(found | _taken(like or {}, name)))
        port = free_port()
        argv: list[str | Path] = [
            self._programs / "kube-scheduler",
            f"--config={config}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder / name}",
            *(["--port=0"] if self._oldest else []),
            *self._features,
        ]
        process = self._run(name, argv)
        until(f"{name} is healthy", lambda: self._healthy(process, port), seconds=START_SECONDS)
        return process

    def policy_scheduler(self, policy: Path) -> ChildProcess:
        """Start the kube-scheduler of a cluster that is configured by a policy file."""
        port = free_port()
        argv: list[str | Path] = [
            self._programs / "kube-scheduler",
            f"--policy-config-file={policy}",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--port=0",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder / 'by-policy'}",
        ]
        process = self._run("by-policy", argv)
        until("it is healthy", lambda: self._healthy(process, port), seconds=START_SECONDS)
        return process

    def controllers(self, *names: str) -> ChildProcess:
        """Start kube-controller-manager with some of its controllers: ``job-controller`` etc.

        It gives pods the certificate of the API server's authority; with such an authority of
        kubeadm's it signs certificates of nodes, too.
        """
        signing = [
            f"--cluster-signing-cert-file={self.authority}",
            f"--cluster-signing-key-file={self.authority.with_suffix('.key')}",
        ]
        argv: list[str | Path] = [
            self._programs / "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join(names)}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=500",
            "--kube-api-burst=500",
            f"--root-ca-file={self.authority}",
            *(signing if self._pki else []),
        ]
        return self._run("kube-controller-manager", argv)

    def start_program(self, name: str, argv: Sequence[str | Path], **env: str) -> ChildProcess:
        """Start another program whose life ends with the control plane's."""
        return self._run(name, argv, env={**os.environ, **env})

    @property
    def _oldest(self) -> bool:
        return self.version == offline.OLDEST

    def _run(self, name: str, argv: Sequence[str | Path], **options: Any) -> ChildProcess:
        with self._starting:
            if self._stopped:
                raise SetupError(f"{name} is not started: the control plane was stopped")
            process = ChildProcess(name, argv, folder=self.folder, **options)
            self.processes.append(process)
            return process

    def _etcd_tool(self, name: str, *arguments: str | Path) -> None:
        command = [self._programs / name, *arguments]
        environment = {**os.environ, "ETCDCTL_API": "3"}
        subprocess.run(
            command, check=True, capture_output=True, timeout=START_SECONDS, env=environment
        )

    def _etcd(self, folder: Path) -> None:
        url, peer = self._etcd_url, self._peer_url
        argv: list[str | Path] = [
            self._programs / "etcd",
            f"--data-dir={folder}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--quota-backend-bytes=4294967296",
            "--log-level=warn",
        ]
        process = self._run("etcd", argv)
        # The API server gives up after 20 s, and etcd takes longer on a busy disk.
        until("etcd is ready", lambda: self._serves(process), seconds=START_SECONDS)

    def _serves(self, etcd: ChildProcess) -> bool:
        etcd.demand_alive()
        try:
            with urllib.request.urlopen(f"{self._etcd_url}/health", timeout=5) as answer:
                return bool(json.load(answer)["health"] == "true")
        except OSError:
            return False

    def _keys(self) -> None:
        command = ["openssl", "genrsa", "-out", str(self.folder / "accounts.key"), "2048"]
        subprocess.run(command, check=True, capture_output=True, timeout=START_SECONDS)
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f"{self.token},admin,admin,system:masters\n")

    def _api_server(self) -> None:
        key = self.folder / "accounts.key"
        argv: list[str | Path] = [
            self._programs / "kube-apiserver",
            f"--etcd-servers={self._etcd_url}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            # Nobody here reaches the API server by its Service, and loopback is refused for that.
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.port}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            *self._node_flags(),
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=1000",
            "--watch-cache-sizes=pods#20000,nodes#10000",
            *self._features,
            *self._apis,
        ]
        process = self._run("kube-apiserver", argv)
        port = self.port
        until(
            "the API server is ready", lambda: self._healthy(process, port), seconds=START_SECONDS
        )

    def _node_flags(self) -> list[str]:
        if self._pki is None:
            return [
                f"--cert-dir={self.folder / 'apiserver'}",
                "--authorization-mode=RBAC",
                f"--disable-admission-plugins={_NOT_HERE}",
            ]
        return [
            f"--tls-cert-file={self._pki / 'apiserver.crt'}",
            f"--tls-private-key-file={self._pki / 'apiserver.key'}",
            f"--client-ca-file={self.authority}",
            "--enable-bootstrap-token-auth=true",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--kubelet-client-certificate={self._pki / 'apiserver-kubelet-client.crt'}",
            f"--kubelet-client-key={self._pki / 'apiserver-kubelet-client.key'}",
            "--kubelet-preferred-address-types=Hostname",
        ]

    def _healthy(self, process: ChildProcess, port: int) -> bool:
        process.demand_alive()
        request = urllib.request.Request(
            f"https://127.0.0.1:{port}/healthz", headers={"Authorization": f"Bearer {self.token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5, context=unverified()) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as refusal:
            refusal.close()
            return False
        except (urllib.error.URLError, OSError):
            return False

    def _write_kubeconfig(self) -> None:
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
            "current-context": "local",
        }
        self.kubeconfig.write_text(json.dumps(document))

    def _scheduler_config(
        self, name: str, extender_url: str | None, verbs: Sequence[str]
    ) -> dict[str, Any]:
        extender = {
            "urlPrefix": extender_url,
            "enableHTTPS": False,
            "nodeCacheCapable": True,
            "ignorable": False,
            "weight": 1,
            "managedResources": [
                {"name": f"aliyun.com/{resource}", "ignoredByScheduler": False}
                for resource in ("gpu-mem", "gpu-core.percentage", "gpu")
            ],
            **{f"{verb}Verb": verb for verb in verbs},
        }
        limits = {"qps": 5000, "burst": 5000}
        # several schedulers run at once, and the oldest's default is one fixed port for all of them
        insecure = f"127.0.0.1:{free_port()}"
        ports = {"healthzBindAddress": insecure, "metricsBindAddress": insecure}
        return {
            "apiVersion": f"kubescheduler.config.k8s.io/{'v1beta1' if self._oldest else 'v1'}",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig), **limits},
            "leaderElection": {"leaderElect": False},
            **(ports if self._oldest else {}),
            # as in the chart: a pod that is sent back does not wait longer than this
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 1,
            "profiles": [{"schedulerName": name}],
            "extenders": [extender] if extender_url else [],
        }


def _taken(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a scheduler of this name takes from another configuration."""
    kept = ("apiVersion", "percentageOfNodesToScore")
    found = {key: config[key] for key in kept if key in config}
    if "profiles" in config:
        suffixes = ("", BURST_SUFFIX)
        found["profiles"] = [
            {**profile, "schedulerName": name + suffix}
            for profile, suffix in zip(config["profiles"], suffixes, strict=False)
        ]
    return found


def unverified() -> ssl.SSLContext:
    """TLS towards a certificate that the server made for itself a moment ago on loopback."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
