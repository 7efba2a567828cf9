"""What a snapshot contains about pods with ResourceClaims, and the core's explanation of them."""

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import msgspec

from gpucore.accounting.claim_offers import exclusive_class, offers_of
from gpucore.accounting.ledger import Ledger
from gpucore.claims.facts import (
    ClaimFacts,
    ClaimObjects,
    allocated_by_name,
    awaits_claim,
    facts_of_extended,
    used_by,
)
from gpucore.claims.node_fit import ClaimNode
from gpucore.claims.objects import CLAIM, CLASS, TEMPLATE
from gpucore.explain.claims import claims_sentence, explain_claims
from gpucore.explain.pod_states import Explanation, PodState
from gpucore.model import PodRequest
from gpucore.scheduling.candidates import Candidates
from gpucore.units import NodeName
from gpucore.wire.claim.claim_specs import DeviceClass
from gpucore.wire.claim.pod_claims import claims_of_pod
from gpucore.wire.claim.resource_slices import OtherDevice, decode_other_devices, decode_slice
from gpucore.wire.constraints import pod_constraints
from gpucore.wire.names import CLAIM_DRIVER
from gpucore.wire.pod.scheduler_events import SchedulerRecord, scheduler_record
from gpucore.wire.pod.spec import Pod
from gpuinspect.cluster.claims import claim_specs, device_classes
from gpuinspect.cluster.scoped import is_partial
from gpuinspect.cluster.snapshots import Snapshot

KINDS: Final = 64
"""Different claims of pending pods that are explained for one snapshot."""
SLICE: Final = "ResourceSlice"
NOTHING: Final = PodRequest(containers=())
"""The request of a pod whose GPUs are requested by claims."""


class PodClaims:
    """The claims of the pods of one snapshot.

    Args:
        kinds: number of different claims of pending pods that are explained.
    """

    def __init__(self, snapshot: Snapshot, ledger: Ledger, *, kinds: int = KINDS) -> None:
        self._snapshot, self._ledger, self._kinds = snapshot, ledger, kinds
        self._alike: dict[object, Explanation] = {}

    @cached_property
    def classes(self) -> Mapping[str, DeviceClass]:
        return device_classes(self._snapshot)

    @cached_property
    def nodes(self) -> Mapping[NodeName, ClaimNode]:
        """Every node, with the devices of its slices."""
        slices = map(decode_slice, self._snapshot.all("ResourceSlice"))
        devices = offers_of(slices, self.classes, self._ledger.names.gpu).devices
        infos, others = self._ledger.nodes(), self._others()
        return {
            name: ClaimNode(
                infos[name],
                devices.get(name, {}),
                None if others is None else others.get(name, ()),
            )
            for name in self._ledger.node_objects()
            if name in infos
        }

    def _others(self) -> Mapping[str, tuple[OtherDevice, ...]] | None:
        """Devices of other drivers by node; ``None`` where some are of no single node."""
        found: dict[str, tuple[OtherDevice, ...]] = {}
        for node, devices in map(decode_other_devices, self._snapshot.all("ResourceSlice")):
            foreign = tuple(each for each in devices if each.driver != CLAIM_DRIVER)
            if foreign and not node:
                return None
            found[node] = (*found.get(node, ()), *foreign)
        return found if any(found.values()) else None

    @cached_property
    def _objects(self) -> ClaimObjects:
        ledger, kinds = self._ledger, (CLASS, CLAIM, TEMPLATE)
        known = (ledger.allocation(uid) for uid in ledger.claims())
        held = [each for each in known if each is not None]
        return ClaimObjects(
            self.classes,
            claim_specs(self._snapshot),
            used_by(held),
            allocated_by_name(held),
            frozenset(kind for kind in kinds if self._snapshot.was_read(kind)),
        )

    def explain(self, facts: ClaimFacts, candidates: Candidates) -> Explanation:
        """The core's explanation; once for all pods that request and require the same.

        Pods of more kinds than the limit have the words of their scheduler alone: their authors
        choose how long an explanation takes. So have all that wait where not all was read.
        """
        located = any(each.placement.node in self.nodes for each in facts.held)
        if located or facts.pod.finished or (facts.held and not self._is_partial):
            return explain_claims(facts, self.nodes, candidates)
        kind = (facts.specs, facts.allocated, facts.missing, facts.constraints)
        if self._is_partial and not (facts.missing or facts.pod.gated):
            return _undecided(facts, facts.pod.node)
        if kind not in self._alike and len(self._alike) >= self._kinds:
            return _undecided(facts)
        if kind not in self._alike:
            self._alike[kind] = explain_claims(facts, self.nodes, candidates)
        found = self._alike[kind]
        return msgspec.structs.replace(
            found, pod=facts.pod, scheduler_record=facts.scheduler_record
        )

    @property
    def _is_partial(self) -> bool:
        """Not all nodes, pods and devices were read, so that a node without any may have some."""
        return is_partial(self._snapshot) or SLICE in self._snapshot.missing

    @cached_property
    def _exclusive_class(self) -> str:
        ledger = self._ledger
        return exclusive_class(ledger.nodes().values(), self.classes, ledger.names.gpu)

    def facts(self, pod: Pod, raw: msgspec.Raw) -> ClaimFacts | None:
        """Claims and events of a pod; ``None`` where it uses no claim for GPUs of gpushare."""
        claims = claims_of_pod(raw)
        if not claims and pod.uid not in self._objects.used_by:
            return None
        constraints = pod_constraints(raw, self._ledger.names)
        return self._objects.facts(pod, claims, constraints, self._scheduler_record(raw))

    def facts_with_extended(
        self, pod: Pod, pod_request: PodRequest | None, raw: msgspec.Raw
    ) -> ClaimFacts | None:
        """As :meth:`facts`, or of the claim that its extended resource waits for."""
        found = self.facts(pod, raw)
        if found is not None or pod_request is None or not awaits_claim(pod, pod_request):
            return found
        if not self._exclusive_class:
            return None
        return facts_of_extended(
            pod,
            pod_request,
            self.classes,
            device_class=self._exclusive_class,
            constraints=pod_constraints(raw, self._ledger.names),
            scheduler_record=self._scheduler_record(raw),
        )

    def _scheduler_record(self, raw: msgspec.Raw) -> SchedulerRecord:
        known = self._snapshot.was_read("Event")
        return scheduler_record(raw, self._snapshot.events, complete=known)


def _undecided(facts: ClaimFacts, node: str = "") -> Explanation:
    """What the objects of a pod alone show: what it requests, and the node that it has."""
    return Explanation(
        facts.pod,
        PodState.PLACED if node else PodState.UNDECIDED,
        request_summary=claims_sentence(facts.specs),
        where=f"a GPU of node {node}" if node else "",
        scheduler_record=facts.scheduler_record,
    )
