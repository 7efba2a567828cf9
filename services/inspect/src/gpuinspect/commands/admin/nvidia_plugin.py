"""``gpushare hold-nvidia-plugin`` and ``release-nvidia-plugin``: one device plugin on a node.

To be run once, by a person who may patch DaemonSets and nodes; without ``--apply`` they only show
what they would change.
"""

import json
import sys
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

import typer

from gpuinspect.commands.admin.controlplane import SHOWN, Apply
from gpuinspect.commands.options.reading import Reader, connecting, note
from gpuinspect.controlplane.nvidia_plugin import (
    Patch,
    changed_since,
    hold,
    holders,
    release,
    static_plugins,
)
from gpukube.blocking import BlockingClient
from gpukube.errors import StatusError

DAEMON_SETS = "/apis/apps/v1/daemonsets"
NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
_CHANGED: Final = frozenset(
    {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}
)
"""Status of a patch of another version than the one that was read."""


@connecting
def hold_nvidia_plugin(reader: Reader, *, apply: Apply = False) -> None:
    """Exclude NVIDIA's own device plugin from nodes labelled gpushare=true or gputopology=true."""
    with reader.source.connect() as kube:
        nodes, pods = _items(kube, NODES), _items(kube, PODS)
        patches = list(hold(_items(kube, DAEMON_SETS), nodes))
        for name in static_plugins(pods):
            note(f"{name} is a static pod: move its file out of kubelet's manifests by hand")
        for name in holders(pods, nodes):
            note(f"{name} keeps its GPUs, which may also be allocated as shares, until it ends")
        _finish(kube, patches, apply=apply)


@connecting
def release_nvidia_plugin(reader: Reader, *, apply: Apply = False) -> None:
    """Restore NVIDIA's device plugin as it was before hold-nvidia-plugin."""
    with reader.source.connect() as kube:
        daemon_sets = _items(kube, DAEMON_SETS)
        for name in changed_since(daemon_sets):
            note(f"{name} is left as it is: its affinity was changed after hold-nvidia-plugin")
        _finish(kube, list(release(daemon_sets, _items(kube, NODES))), apply=apply)


def _finish(kube: BlockingClient, patches: Iterable[Patch], *, apply: bool) -> None:
    """Show every change, and make it where that is wanted; exit code 1 where one was not made."""
    patches = tuple(patches)
    made = [_shown(kube, patch, apply=apply) for patch in patches]
    if not patches:
        note("nothing to do")
    elif not apply:
        note(SHOWN)
    if not all(made):
        raise typer.Exit(1)


def _shown(kube: BlockingClient, patch: Patch, *, apply: bool) -> bool:
    """Whether nothing failed: an object that others change all the time keeps no other back."""
    sys.stdout.write(f"{patch.title}\n")
    try:
        if apply:
            kube.json_patch(patch.path, patch.operations)
    except StatusError as error:
        if error.status not in _CHANGED:
            raise
        note(f"error: not done, the object has changed meanwhile; run the command again: {error}")
        return False
    return True


def _items(kube: BlockingClient, path: str) -> list[dict[str, Any]]:
    return [item for page in kube.pages(path) for item in json.loads(page)["items"]]
