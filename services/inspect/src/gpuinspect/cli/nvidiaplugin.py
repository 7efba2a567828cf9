"""``gpushare hold-nvidia-plugin`` and ``release-nvidia-plugin``: one device plugin on a node.

To be run once, by a person who may patch DaemonSets and nodes; without ``--apply`` they only show
what they would change.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gpuinspect.cli.controlplane import Apply
from gpuinspect.cli.reading import Context, Kubeconfig, Timeout, fail, note
from gpuinspect.errors import InspectError
from gpuinspect.kube import Kube
from gpuinspect.nvidiaplugin import Patch, changed_since, hold, holders, release, static_plugins

DAEMON_SETS = "/apis/apps/v1/daemonsets"
NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"


def hold_nvidia_plugin(
    *,
    apply: Apply = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: Timeout = 30.0,
) -> None:
    """Keep NVIDIA's own device plugin off nodes labelled gpushare=true or gputopology=true."""
    try:
        kube = _kube(kubeconfig, context, request_timeout)
        nodes, pods = _items(kube, NODES), _items(kube, PODS)
        patches = list(hold(_items(kube, DAEMON_SETS), nodes))
        for name in static_plugins(pods):
            note(f"{name} is a static pod: move its file out of kubelet's manifests by hand")
        for name in holders(pods, nodes):
            note(f"{name} keeps its GPUs, which may be shared out too, until it ends")
        _finish(kube, patches, apply=apply)
    except InspectError as error:
        fail(error)


def release_nvidia_plugin(
    *,
    apply: Apply = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: Timeout = 30.0,
) -> None:
    """Give NVIDIA's own device plugin back as it was before hold-nvidia-plugin."""
    try:
        kube = _kube(kubeconfig, context, request_timeout)
        daemon_sets = _items(kube, DAEMON_SETS)
        for name in changed_since(daemon_sets):
            note(f"{name} is left as it is: its affinity was changed after hold-nvidia-plugin")
        _finish(kube, list(release(daemon_sets, _items(kube, NODES))), apply=apply)
    except InspectError as error:
        fail(error)


def _kube(kubeconfig: Path | None, context: str | None, timeout: float) -> Kube:
    return Kube.connect(kubeconfig=kubeconfig, context=context, timeout=timeout)


def _finish(kube: Kube, patches: Iterable[Patch], *, apply: bool) -> None:
    """Show every change, and make it where that is wanted."""
    patches = tuple(patches)
    for patch in patches:
        sys.stdout.write(f"{patch.title}\n")
        if apply:
            kube.patch(patch.path, patch.operations)
    if not patches:
        note("nothing to do")
    elif not apply:
        note("nothing was changed: --apply does it")


def _items(kube: Kube, path: str) -> list[dict[str, Any]]:
    return list(_listed(kube, path))


def _listed(kube: Kube, path: str) -> Iterator[dict[str, Any]]:
    for page in kube.pages(path):
        yield from json.loads(page)["items"]
