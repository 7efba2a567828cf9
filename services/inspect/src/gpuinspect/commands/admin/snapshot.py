"""``gpushare snapshot``: a file for ``--snapshot``, to look at a cluster elsewhere or later."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from gpucore.wire.claim.resource_slices import API_VERSION as RESOURCE_VERSION
from gpucore.wire.names import ENV_VISIBLE_DEVICES, UNHEALTHY_PREFIX
from gpuinspect.cluster.collect import FAILED_SCHEDULING
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.commands.options.reading import Reader, fail, note, reading
from gpuinspect.doctor.registry import WANTED
from gpuinspect.terminal.progress import counting, shown

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_VERSIONS: Final = {
    "RuntimeClass": "node.k8s.io/v1",
    "ResourceSlice": RESOURCE_VERSION,
    "ResourceClaim": RESOURCE_VERSION,
    "ResourceClaimTemplate": RESOURCE_VERSION,
    "DeviceClass": RESOURCE_VERSION,
    "MutatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
    "ValidatingAdmissionPolicy": "admissionregistration.k8s.io/v1",
    "ValidatingAdmissionPolicyBinding": "admissionregistration.k8s.io/v1",
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
}
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
_Object = tuple[str, msgspec.Raw]


@reading
def snapshot(
    reader: Reader,
    file: Annotated[Path, typer.Argument(help="output file; - is standard output", metavar="FILE")],
) -> None:
    """Write nodes, pods and the inputs of doctor to one file; environment values are omitted."""
    with shown("objects read") as progress:
        found = reader.source.read(*WANTED, FAILED_SCHEDULING, count=progress.add)
    raw = dump(found, counting("objects written"))
    if file == Path("-"):
        sys.stdout.buffer.write(raw)
    else:
        try:
            file.write_bytes(raw)
        except OSError as error:
            fail(f"cannot write {file}: {error.strerror}")
    for kind, reason in found.missing.items():
        note(f"note: without {kind}: {reason}")
    note(f"{len(found.nodes)} nodes and {len(found.pods)} pods, {len(raw)} bytes")


def dump(
    snapshot: Snapshot, taken: Callable[[Sequence[_Object]], Iterable[_Object]] = iter
) -> bytes:
    """The list as JSON, one object a line.

    Args:
        snapshot: the cluster.
        taken: gives the objects one after the other, and may show how many were written.
    """
    objects = [(kind, raw) for kind, raws in snapshot.raw.items() for raw in raws]
    lines = [msgspec.json.encode(item) for item in _items(taken(objects))]
    body = b",\n".join(lines)
    return b'{"apiVersion":"v1","kind":"List","metadata":{},"items":[\n' + body + b"\n]}\n"


def _items(objects: Iterable[_Object]) -> Iterator[dict[str, Any]]:
    for kind, raw in objects:
        item = msgspec.json.decode(raw, type=dict[str, Any])
        if kind != "ConfigMap" or _has_gpu_data(item):
            head = {"apiVersion": _VERSIONS.get(kind, "v1"), "kind": kind}
            yield head | _clean(item)


def _has_gpu_data(config_map: dict[str, Any]) -> bool:
    """The ConfigMap lists unhealthy GPUs or configures a scheduler."""
    name = config_map.get("metadata", {}).get("name", "")
    texts = (config_map.get("data") or {}).values()
    return name.startswith(UNHEALTHY_PREFIX) or any(
        "KubeSchedulerConfiguration" in t for t in texts
    )


def _clean(item: dict[str, Any]) -> dict[str, Any]:
    metadata = dict(item.get("metadata") or {})
    metadata.pop("managedFields", None)
    annotations = dict(metadata.get("annotations") or {})
    if annotations.pop(LAST_APPLIED, None) is not None:
        metadata["annotations"] = annotations
    cleaned = {**item, "metadata": metadata}
    spec = item.get("spec")
    if isinstance(spec, dict) and "containers" in spec:
        cleaned["spec"] = {**spec, **_without_values(spec)}
    return cleaned


def _without_values(spec: dict[str, Any]) -> dict[str, Any]:
    """Names of variables matter to the checks, values may be secret; a list of GPUs is not."""
    return {
        key: [
            {**box, "env": [_without_value(each) for each in box.get("env") or ()]}
            for box in spec[key] or ()
        ]
        for key in _CONTAINERS
        if key in spec
    }


def _without_value(variable: dict[str, Any]) -> dict[str, Any]:
    name = variable.get("name", "")
    return variable if name == ENV_VISIBLE_DEVICES else {"name": name}
