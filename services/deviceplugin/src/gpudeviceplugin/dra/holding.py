"""Passes to the node state which claims hold its GPUs."""

from collections.abc import Collection

from gpucore.node.claims.prepared import PreparedClaim
from gpudeviceplugin import telemetry
from gpudeviceplugin.state import NodeState


class ClaimHolder:
    """Counts prepared claims in the state of the node."""

    def __init__(self, state: NodeState) -> None:
        self._state = state

    def hold(self, claim: PreparedClaim) -> None:
        """A claim is prepared, or about to be."""
        if self._state.claims.put(claim):
            self._changed()

    async def stop_sweep(self) -> None:
        """Wait until no sweep can remove files of the pods of claims held from now on."""
        await self._state.stop_sweep()

    def release(self, uid: str) -> None:
        """A claim is not prepared any more."""
        if self._state.claims.drop(uid):
            self._changed()

    def release_all_but(self, uids: Collection[str]) -> None:
        """Release the claims with other UIDs than these."""
        for uid in self._state.claims.uids.difference(uids):
            self.release(uid)

    def _changed(self) -> None:
        telemetry.CLAIMS.set(len(self._state.claims))
        self._state.outlook_changed.fire()
