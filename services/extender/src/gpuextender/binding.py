"""The one write of a bind: a Binding with node, UID precondition and every annotation.

The API server merges a Binding's annotations into the pod in the same update that sets its node, so
there is no half state to clean up. Sending it again is safe: a bound pod answers 409.
"""

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import Final

import msgspec

from gpucore.account import NodeAccount
from gpucore.model import Claim, Demand
from gpucore.units import NodeName
from gpucore.wire.names import Names
from gpucore.wire.pods import Pod, annotations_of
from gpuextender import metrics
from gpukube.backoff import Backoff
from gpukube.client import KubeClient
from gpukube.errors import KubeError, ServerError, ThrottledError, UnreachableError

FIRST_PAUSE: Final = 0.05
LAST_PAUSE: Final = 1.0


class Result(msgspec.Struct, frozen=True):
    """What came of the write.

    Attributes:
        written: the API server said so.
        silent: it may or may not have been done.
        error: of the last try.
    """

    written: bool = False
    silent: bool = False
    error: str = ""


class Writer:
    """Writes Bindings.

    Args:
        deadline: seconds after which no further try begins and a running one is given up.
    """

    def __init__(self, api: KubeClient, *, deadline: float) -> None:
        self._api = api
        self._deadline = deadline

    async def write(self, pod: Pod, node: NodeName, annotations: Mapping[str, str]) -> Result:
        """Send until it is done, refused, or late."""
        path = pod_path(pod.namespace, pod.name) + "/binding"
        body = _body(pod, node, annotations)
        backoff = Backoff(first=FIRST_PAUSE, last=LAST_PAUSE)
        until = monotonic() + self._deadline
        silent = False
        while True:
            metrics.BIND_WRITES.inc()
            try:
                async with asyncio.timeout(max(0.0, until - monotonic())):
                    await self._api.post(path, body)
                return Result(written=True)
            except (ThrottledError, ServerError, UnreachableError, TimeoutError) as error:
                silent = silent or not isinstance(error, ThrottledError)
                pause = backoff.after_failure(lasted=0, asked=getattr(error, "retry_after", 0.0))
                if monotonic() + pause >= until:
                    return Result(silent=silent, error=str(error) or "the API server is silent")
            except KubeError as error:
                return Result(error=str(error))
            await asyncio.sleep(pause)


def pod_path(namespace: str, name: str) -> str:
    """Path of a pod on the API server."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def annotations(claim: Claim, demand: Demand, names: Names, account: NodeAccount) -> dict[str, str]:
    """The annotations that say ``claim``; its node has an inventory."""
    if account.inventory is None:
        raise ValueError(f"a claim on {account.name}, which has no cards")
    return annotations_of(
        claim.placement,
        demand,
        names,
        inventory=account.inventory,
        assume_time=claim.assume_time,
        exclusive=claim.exclusive,
    )


def _body(pod: Pod, node: NodeName, annotations: Mapping[str, str]) -> bytes:
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": pod.name,
                "namespace": pod.namespace,
                "uid": pod.uid,
                "annotations": annotations,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
    )
