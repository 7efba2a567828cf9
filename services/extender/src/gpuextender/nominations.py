"""Which waiting pods are nominated for which node."""

from gpucore.account import NodeAccount
from gpucore.model import Demand, Refusal
from gpucore.nominated import NominatedPod, before, refusal_beside
from gpucore.units import NodeName, PodUid
from gpucore.wire.pods import Pod


class Nominations:
    """Nominated pods by node; few at any time, and usually none."""

    def __init__(self) -> None:
        self._pods: dict[NodeName, dict[PodUid, NominatedPod]] = {}
        self._nodes: dict[PodUid, NodeName] = {}

    def __bool__(self) -> bool:
        """There is a nominated pod."""
        return bool(self._pods)

    def note(self, pod: Pod, demand: Demand) -> NodeName | None:
        """A pod waits, nominated or not; the node that is no longer kept for it."""
        left = self.drop(pod.uid)
        if pod.nominated and not demand.fault:
            one = NominatedPod(pod.uid, pod.name, demand, pod.priority)
            self._pods.setdefault(pod.nominated, {})[pod.uid] = one
            self._nodes[pod.uid] = pod.nominated
        return left if left != pod.nominated else None

    def drop(self, uid: PodUid) -> NodeName | None:
        """The pod waits no more; the node that was kept for it."""
        node = self._nodes.pop(uid, None)
        if node is not None:
            del self._pods[node][uid]
            if not self._pods[node]:
                del self._pods[node]
        return node

    def clear(self) -> None:
        """Nothing is known."""
        self._pods.clear()
        self._nodes.clear()

    def refusal(
        self, account: NodeAccount | None, pod: Pod, demand: Demand
    ) -> tuple[Refusal, str] | None:
        """Why a node that has room keeps it from ``pod``, and for which pods it does."""
        if account is None:
            return None
        held = self.before(account.name, pod)
        refusal = refusal_beside(account, demand, held) if held else None
        if refusal is None:
            return None
        names = ", ".join(sorted(one.name for one in held))
        return refusal, f"room is kept for {names}, for which pods are evicted here"

    def before(self, node: NodeName, pod: Pod) -> list[NominatedPod]:
        """Pods nominated for the node for which ``pod`` must leave room."""
        return before(self._pods.get(node, {}).values(), pod.uid, pod.priority)

    def nodes(self) -> frozenset[NodeName]:
        """Nodes for which a pod is nominated."""
        return frozenset(self._pods)
