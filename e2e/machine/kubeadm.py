"""kubeadm prepares a control plane that it did not start, so that nodes can join it.

Phases of `kubeadm init` make the certificates of the cluster, the two ConfigMaps from which a node
takes its configuration, and a token with the right to request a certificate.
"""

import json
import secrets
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import offline
from environments.controlplane import ControlPlane
from host.commands import run_command

SECONDS: Final = 300
"""Longest time of a phase."""
_API: Final = "kubeadm.k8s.io/v1beta4"
_SOCKET: Final = "unix:///run/containerd/containerd.sock"
_TOKEN_HOURS: Final = 24


class Kubeadm:
    """kubeadm of one cluster.

    Args:
        version: of Kubernetes, without a `v`.
        folder: of this run; the certificates go to ``pki`` in it.
        address: of the API server, as nodes reach it.
    """

    def __init__(self, version: str, folder: Path, address: str) -> None:
        self._version, self._folder, self._address = version, folder, address
        self._token = f"{secrets.token_hex(3)}.{secrets.token_hex(8)}"
        self.pki = folder / "pki"

    def make_certificates(self) -> None:
        """Of the cluster's authority and, by it, of the API server and its clients."""
        init, cluster = self._configuration()
        self._phase((init, {**cluster, "certificatesDir": str(self.pki)}), "certs", "all")

    def prepare(self, plane: ControlPlane, kubeconfig: Path, kubelet: Mapping[str, Any]) -> None:
        """Have a control plane that runs accept nodes, whose kubelets get this configuration.

        Args:
            plane: with the certificates of :meth:`make_certificates`.
            kubeconfig: of a user who may do anything, with the cluster's authority.
            kubelet: fields of a KubeletConfiguration; kubeadm adds its own.
        """
        documents = (*self._configuration(plane.port), _kubelet(kubelet))
        for phase in (("upload-config", "all"), ("bootstrap-token", "--skip-token-print")):
            self._phase(documents, *phase, f"--kubeconfig={kubeconfig}")

    def join_configuration(self, node: str, discovery: str, flags: Mapping[str, str]) -> str:
        """The file of a node for `kubeadm join --config`.

        Args:
            node: its name.
            discovery: path on the node of the file of :meth:`discovery`.
            flags: of its kubelet.
        """
        registration = {
            **_registration(node),
            "kubeletExtraArgs": [{"name": name, "value": flags[name]} for name in flags],
        }
        found = {
            "apiVersion": _API,
            "kind": "JoinConfiguration",
            "discovery": {
                "file": {"kubeConfigPath": discovery},
                "tlsBootstrapToken": self._token,
            },
            "nodeRegistration": registration,
            "timeouts": dict.fromkeys(
                ("discovery", "kubeletHealthCheck", "tlsBootstrap"), f"{SECONDS}s"
            ),
        }
        return json.dumps(found)

    def discovery(self, plane: ControlPlane) -> str:
        """A kubeconfig that names the API server and its authority, and no user."""
        cluster = {
            "server": f"https://{self._address}:{plane.port}",
            "certificate-authority-data": _base64(self.pki / "ca.crt"),
        }
        # The unnamed cluster is that of a file without contexts, as in the ConfigMap cluster-info.
        clusters = [{"name": "", "cluster": cluster}]
        return json.dumps({"apiVersion": "v1", "kind": "Config", "clusters": clusters})

    def _configuration(self, port: int = 6443) -> tuple[dict[str, Any], ...]:
        init = {
            "apiVersion": _API,
            "kind": "InitConfiguration",
            "bootstrapTokens": [{"token": self._token, "ttl": f"{_TOKEN_HOURS}h0m0s"}],
            "localAPIEndpoint": {"advertiseAddress": self._address, "bindPort": port},
            "nodeRegistration": _registration("control-plane"),
        }
        cluster = {
            "apiVersion": _API,
            "kind": "ClusterConfiguration",
            "kubernetesVersion": f"v{self._version}",
            "controlPlaneEndpoint": f"{self._address}:{port}",
            "networking": {"serviceSubnet": "10.96.0.0/16"},
            "apiServer": {"certSANs": ["127.0.0.1"]},
        }
        return init, cluster

    def _phase(self, documents: tuple[dict[str, Any], ...], *words: str) -> None:
        file = self._folder / "kubeadm.yaml"
        file.touch(mode=0o600)
        file.write_text("\n---\n".join(map(json.dumps, documents)))
        program = offline.ensure_programs(self._version) / "kubeadm"
        argv: list[str | Path] = [program, "init", "phase", *words, f"--config={file}"]
        run_command(argv, timeout_s=SECONDS)


def _registration(name: str) -> dict[str, str]:
    return {"name": name, "criSocket": _SOCKET}


def _kubelet(fields: Mapping[str, Any]) -> dict[str, Any]:
    version = "kubelet.config.k8s.io/v1beta1"
    return {"apiVersion": version, "kind": "KubeletConfiguration", **fields}


def _base64(file: Path) -> str:
    return b64encode(file.read_bytes()).decode()
