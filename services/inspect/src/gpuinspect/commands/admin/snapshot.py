"""``gpushare snapshot``: a file for ``--snapshot``, to look at a cluster elsewhere or later."""

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from gpucore.wire.claim.resource_slices import API_VERSION as RESOURCE_VERSION
from gpucore.wire.names import UNHEALTHY_PREFIX, Names
from gpuinspect.cluster.collect import FAILED_SCHEDULING
from gpuinspect.cluster.redaction import redacted
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.commands.options.reading import Reader, fail, note, reading
from gpuinspect.doctor.registry import WANTED
from gpuinspect.terminal.progress import counting, shown

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
_Object = tuple[str, msgspec.Raw]


@reading
def snapshot(
    reader: Reader,
    file: Annotated[Path, typer.Argument(help="output file; - is standard output", metavar="FILE")],
) -> None:
    """Write nodes, pods and the inputs of doctor to one file that only you can read.

    Environment values, arguments, commands, probes, settings of volumes and the annotations of
    other programs are left out. Names, labels, messages and images stay: read the file before you
    share it.
    """
    with shown("objects read") as progress:
        found = reader.source.read(*WANTED, FAILED_SCHEDULING, count=progress.add)
    raw = dump(found, reader.names, counting("objects written"))
    if file == Path("-"):
        sys.stdout.buffer.write(raw)
    else:
        try:
            _write(file, raw)
        except OSError as error:
            fail(f"cannot write {file}: {error.strerror}")
    for kind, reason in found.missing.items():
        note(f"note: without {kind}: {reason}")
    note(f"{len(found.nodes)} nodes and {len(found.pods)} pods, {len(raw)} bytes")


def _write(file: Path, raw: bytes) -> None:
    """Only the owner may read the file, also one that exists; a device or pipe stays as it is."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        if stat.S_ISREG(os.fstat(out.fileno()).st_mode):
            os.fchmod(out.fileno(), 0o600)
        out.write(raw)


def dump(
    snapshot: Snapshot,
    names: Names,
    taken: Callable[[Sequence[_Object]], Iterable[_Object]] = iter,
) -> bytes:
    """The list as JSON, one object a line.

    Args:
        taken: gives the objects one after the other, and may show how many were written.
    """
    objects = [(kind, raw) for kind, raws in snapshot.raw.items() for raw in raws]
    lines = [msgspec.json.encode(item) for item in _items(taken(objects), names)]
    body = b",\n".join(lines)
    return b'{"apiVersion":"v1","kind":"List","metadata":{},"items":[\n' + body + b"\n]}\n"


def _items(objects: Iterable[_Object], names: Names) -> Iterator[dict[str, Any]]:
    for kind, raw in objects:
        item = msgspec.json.decode(raw, type=dict[str, Any])
        if kind != "ConfigMap" or _has_gpu_data(item):
            head = {"apiVersion": _VERSIONS.get(kind, "v1"), "kind": kind}
            yield head | redacted(item, names)


def _has_gpu_data(config_map: dict[str, Any]) -> bool:
    """The ConfigMap lists unhealthy GPUs or configures a scheduler."""
    name = config_map.get("metadata", {}).get("name", "")
    texts = (config_map.get("data") or {}).values()
    return name.startswith(UNHEALTHY_PREFIX) or any(
        "KubeSchedulerConfiguration" in t for t in texts
    )
