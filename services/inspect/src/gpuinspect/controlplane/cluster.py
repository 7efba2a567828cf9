"""Reads from the API server which extender exists and the state of a node's kube-scheduler.

A scheduler that runs as a static pod cannot resolve names of the cluster, so the Service's address
is put in place of its name; the certificate is still held to the name.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import yaml

from gpuinspect.controlplane.configuration import SchedulerOffer, is_ours
from gpuinspect.errors import ControlPlaneError
from gpukube.blocking import BlockingClient
from gpukube.errors import KubeError

_COMPONENT: Final = "app.kubernetes.io/component=extender"
_CONFIG: Final = "config.yaml"
_CREDENTIALS: Final = {"caData": "ca.crt", "certData": "tls.crt", "keyData": "tls.key"}
"""Fields of ``tlsConfig``, and the keys of the Secret that they are read from."""
_POLL_SECONDS: Final = 1.0
STEADY_SECONDS: Final = 5.0
"""Seconds that the scheduler must have run: a configuration that it rejects ends it at once."""


def offered(kube: BlockingClient, namespace: str) -> SchedulerOffer:
    """What the chart, installed there in mode ``extender``, has for the cluster's scheduler.

    Raises:
        ControlPlaneError: there is no such release, or more than one, or its Secret has no client
            certificate yet.
        KubeError: the API server did not answer.
    """
    base = f"/api/v1/namespaces/{namespace}"
    name, data = _config(kube, base)
    config = yaml.safe_load(data[_CONFIG])
    (extender,) = (dict(each) for each in config["extenders"] if is_ours(each))
    service = json.loads(kube.get(f"{base}/services/{name}"))
    extender["urlPrefix"] = _at(str(extender["urlPrefix"]), service["spec"]["clusterIP"])
    if "tlsConfig" in extender:
        held_to = extender["tlsConfig"]["serverName"]
        pair = _credentials(kube, namespace, data["credentials"])
        extender["tlsConfig"] = {"serverName": held_to} | pair
    return SchedulerOffer(extender, str(config["apiVersion"]))


def _at(url: str, ip: str) -> str:
    """The URL with the address in place of its host."""
    address = urlsplit(url)
    host = f"[{ip}]" if ":" in ip else ip
    return urlunsplit(address._replace(netloc=f"{host}:{address.port}"))


def _credentials(kube: BlockingClient, namespace: str, secret: str) -> dict[str, str]:
    """CA bundle and client certificate of the scheduler, in base64 as its kubeconfig has them."""
    found = json.loads(kube.get(f"/api/v1/namespaces/{namespace}/secrets/{secret}"))
    data = found.get("data") or {}
    missing = [key for key in _CREDENTIALS.values() if not data.get(key)]
    if missing:
        raise ControlPlaneError(
            f"the Secret {namespace}/{secret} has no {', '.join(missing)} yet: wait until it is"
            f" filled, by default by a Job that kubectl get jobs -n {namespace} lists"
        )
    return {field: data[key] for field, key in _CREDENTIALS.items()}


def _config(kube: BlockingClient, base: str) -> tuple[str, Mapping[str, str]]:
    """Name of the extender, and the data of the ConfigMap that is made for who calls it."""
    maps = json.loads(kube.get(f"{base}/configmaps", {"labelSelector": _COMPONENT}))["items"]
    items = [each for each in maps if _CONFIG in (each.get("data") or {})]
    if len(items) != 1:
        raise ControlPlaneError(
            f"{len(items)} ConfigMaps of schedulers with {_COMPONENT} under {base}, not 1: install"
            " the chart there once, with scheduler.mode=extender"
        )
    (found,) = items
    return found["metadata"]["name"].removesuffix("-config"), found["data"]


def wait_running(kube: BlockingClient, node: str, config: str, *, seconds: float) -> None:
    """Return when the node's kube-scheduler runs steadily with this ``--config``.

    Args:
        node: name of the control-plane node.
        config: path that ``--config`` must have; empty: none that gpushare wrote.
        seconds: how long to wait at most.

    Raises:
        ControlPlaneError: it does not by then; the message has its state.
    """
    _steadily(lambda: _state(_pod(kube, node), config), seconds=seconds)


def _steadily(state: Callable[[], str], *, seconds: float) -> None:
    """Poll until the result has been empty for a while."""
    end = time.monotonic() + seconds
    since: float | None = None
    while True:
        now = time.monotonic()
        trouble = state()
        since = None if trouble else since or now
        if since is not None and now - since >= STEADY_SECONDS:
            return
        if now >= end:
            raise ControlPlaneError(trouble or "kube-scheduler has not run for long enough yet")
        time.sleep(_POLL_SECONDS)


def _pod(kube: BlockingClient, node: str) -> Mapping[str, Any] | None:
    """The mirror of the static pod; none while kubelet replaces it or the API server is away."""
    path = f"/api/v1/namespaces/kube-system/pods/kube-scheduler-{node}"
    try:
        return dict(json.loads(kube.get(path)))
    except KubeError:
        return None


def _state(pod: Mapping[str, Any] | None, config: str) -> str:
    """Why the pod does not yet run as requested; empty when it does."""
    if pod is None:
        return "kubelet has not reported kube-scheduler to the API server"
    container = pod["spec"]["containers"][0]
    words = [*container.get("command", ()), *container.get("args", ())]
    ours = [word for word in words if "/gpushare/scheduler-" in word]
    if ours != ([f"--config={config}"] if config else []):
        return "kubelet has not started the new manifest"
    (status,) = pod["status"].get("containerStatuses") or [{}]
    if status.get("ready"):
        return ""
    waiting = status.get("state", {}).get("waiting") or status.get("lastState", {})
    return f"kube-scheduler does not run: {json.dumps(waiting)}"
