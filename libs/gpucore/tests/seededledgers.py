"""Ledgers with a bug each, as the originals or hasty hands would write them.

A check that does not fail on these checks nothing.
"""

from gpucore.account import NodeAccount
from gpucore.cards import CardAccount
from gpucore.ledger import Ledger
from gpucore.units import NodeName, PodUid
from gpucore.wire.nodes import Node
from gpucore.wire.pods import Pod


class LeakyForget(Ledger):
    """A failed bind does not give its reservation back."""

    def forget(self, uid: PodUid) -> bool:
        return uid in self._assumed


class HastyDrop(Ledger):
    """An unbound event of a pod that is being bound drops its reservation."""

    def pod_changed(self, pod: Pod) -> None:
        if not pod.node:
            self._release(pod.uid)
        super().pod_changed(pod)


class StuckClaim(Ledger):
    """A changed annotation does not move the claim to the other card."""

    def pod_changed(self, pod: Pod) -> None:
        standing = self.claim(pod.uid)
        known = standing is not None and pod.uid not in self._assumed
        if known and pod.node and not pod.finished:
            return
        super().pod_changed(pod)


class DoubleCount(Ledger):
    """A changed annotation is counted on the new card and stays on the old one."""

    def pod_changed(self, pod: Pod) -> None:
        standing = self.claim(pod.uid)
        super().pod_changed(pod)
        moved = self.claim(pod.uid)
        if standing is None or moved is None or standing.placement.mem == moved.placement.mem:
            return
        account = self.node(standing.placement.node)
        assert account is not None
        for index, units in standing.placement.mem.items():
            if index in account.cards and index not in moved.placement.mem:
                account.cards[index].used += units


class EarlyRelease(Ledger):
    """A terminating pod is freed while its containers still run."""

    def pod_changed(self, pod: Pod) -> None:
        if pod.terminating:
            self._release(pod.uid)
            return
        super().pod_changed(pod)


class UnsignedCard(CardAccount):
    """Free units are an unsigned number that wraps."""

    __slots__ = ()

    @property
    def free(self) -> int:
        return (self.total - self.used) % (1 << 64)


class Underflow(Ledger):
    """An over-full card looks almost infinitely free."""

    def _note(self, account: NodeAccount) -> None:
        for card in account.cards.values():
            card.__class__ = UnsignedCard
        account._reckon()
        super()._note(account)


class FrozenShape(Ledger):
    """A node keeps the shape it was first seen with."""

    def node_changed(self, node: Node) -> None:
        if node.name not in self._objects:
            super().node_changed(node)


class AmnesicNode(Ledger):
    """The claims on a node are lost with the node."""

    def node_gone(self, name: NodeName) -> None:
        for uid, claim in list(self._claims.items()):
            if claim.placement.node == name:
                self._release(uid)
        super().node_gone(name)


class EagerRelist(Ledger):
    """A relist drops the reservations of binds that are under way."""

    def relist_pods(self, pods: object) -> None:
        for uid in list(self._assumed):
            self._release(uid)
        super().relist_pods(pods)  # type: ignore[arg-type]


class NameKeyed(Ledger):
    """A pod that is re-created under the same name is taken for the old one."""

    def pod_gone(self, uid: PodUid) -> None:
        claim = self.claim(uid)
        super().pod_gone(uid)
        if claim is None:
            return
        for other, twin in list(self._claims.items()):
            if (twin.namespace, twin.name) == (claim.namespace, claim.name):
                self._release(other)


class GullibleCard(CardAccount):
    """What a card holds beyond its size is nobody's business."""

    __slots__ = ()

    @property
    def excess(self) -> int:
        return 0


class Gullible(Ledger):
    """While two pods that swapped cards are being corrected, a taken card looks free."""

    def _note(self, account: NodeAccount) -> None:
        for card in account.cards.values():
            card.__class__ = GullibleCard
        account._reckon()
        super()._note(account)
