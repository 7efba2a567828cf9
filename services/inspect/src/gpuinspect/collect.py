"""Where the commands read a cluster from: a live API server or a snapshot file, alike.

Only what a command needs is asked for; a kind that the credentials may not read is noted as missing
instead of failing the command, since nodes and pods answer most questions.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gpucore.wire.errors import WireError
from gpucore.wire.lists import decode_nodes, decode_pods
from gpucore.wire.names import UNHEALTHY_NAMESPACE
from gpuinspect import snapshots
from gpuinspect.errors import ClusterError
from gpuinspect.snapshots import Snapshot

if TYPE_CHECKING:  # the client takes half a second to import and a snapshot needs none
    from gpuinspect.kube import Kube

PATHS: Final = {"ConfigMap": f"/api/v1/namespaces/{UNHEALTHY_NAMESPACE}/configmaps"}
"""Where kinds other than nodes and pods are listed."""


class _Items(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class Source(msgspec.Struct, frozen=True):
    """What the shared flags say about where to read.

    Attributes:
        snapshot: file to read instead of a cluster; ``-`` is standard input.
        timeout: seconds one request may take.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    snapshot: Path | None = None
    timeout: float = 30.0

    def read(self, *kinds: str) -> Snapshot:
        """Nodes and pods, and objects of ``kinds`` where they can be had.

        Raises:
            InspectError: neither cluster nor file can be read.
        """
        if self.snapshot is not None:
            return snapshots.read(self.snapshot)
        return live(self.connect(), kinds)

    def connect(self) -> "Kube":
        """The live API server.

        Raises:
            ClusterError: no credentials are found.
        """
        from gpuinspect.kube import Kube  # noqa: PLC0415 - see the top

        return Kube.connect(kubeconfig=self.kubeconfig, context=self.context, timeout=self.timeout)


def live(kube: "Kube", kinds: tuple[str, ...] = ()) -> Snapshot:
    """The cluster as it is now.

    Raises:
        ClusterError: nodes or pods cannot be read.
    """
    try:
        nodes = [node for page in kube.pages("/api/v1/nodes") for node in decode_nodes(page).items]
        pods = [pod for page in kube.pages("/api/v1/pods") for pod in decode_pods(page).items]
    except WireError as error:
        raise ClusterError(f"the API server's answer cannot be read: {error}") from error
    others: dict[str, tuple[msgspec.Raw, ...]] = {}
    missing: dict[str, str] = {}
    for kind in kinds:
        try:
            others[kind] = _listed(kube, PATHS[kind])
        except ClusterError as error:
            missing[kind] = str(error)
    return Snapshot(tuple(nodes), tuple(pods), others, missing)


def _listed(kube: "Kube", path: str) -> tuple[msgspec.Raw, ...]:
    pages = (msgspec.json.decode(page, type=_Items).items or () for page in kube.pages(path))
    return tuple(item for page in pages for item in page)
