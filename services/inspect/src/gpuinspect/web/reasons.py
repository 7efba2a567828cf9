"""Why the pods of one frame are pending: each kind of pod is explained once, for all viewers.

Tenants choose how different their pods are, so the number of explanations is limited. The others
have the scheduler's message; the page of a pod explains it in full.
"""

from collections.abc import Callable
from functools import cached_property
from threading import Lock

from gpucore.accounting.ledger import Ledger
from gpucore.accounting.node_info import common_unit
from gpucore.explain.pod_states import Explanation, PodState
from gpucore.explain.pods import likeness, request_sentence
from gpucore.explain.sentences import gated
from gpucore.model import PodRequest
from gpucore.scheduling.candidates import Candidates
from gpucore.units import MemoryUnit
from gpucore.wire.constraints import pod_constraints
from gpucore.wire.pod.scheduler_events import scheduler_record
from gpucore.wire.pod.spec import Pod
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.queries.claims import PodClaims
from gpuinspect.web.limits import most_pods


class PendingReasons:
    """The explanations of the pending pods of one snapshot.

    Args:
        explain: the full explanation of a pod without claims.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        ledger: Ledger,
        claims: PodClaims,
        explain: Callable[[Pod], Explanation],
    ) -> None:
        self._snapshot, self._ledger, self._claims = snapshot, ledger, claims
        self._explain, self._most = explain, most_pods(len(snapshot.nodes))
        self._alike: dict[object, Explanation] = {}
        self._lock = Lock()

    @cached_property
    def _unit(self) -> MemoryUnit | None:
        return common_unit(self._ledger.nodes().values())

    def of(self, pod: Pod, pod_request: PodRequest, candidates: Candidates) -> Explanation:
        """Why a pod is pending; undecided where too many different pods were explained before."""
        raw = self._snapshot.raw_by_uid[pod.uid]
        facts = self._claims.facts_with_extended(pod, pod_request, raw)
        with self._lock:  # viewers in other threads wait for the explanation
            if facts is not None:
                return self._claims.explain(facts, candidates)
            return self._of_shares(pod, pod_request)

    def _of_shares(self, pod: Pod, pod_request: PodRequest) -> Explanation:
        raw = self._snapshot.raw_by_uid[pod.uid]
        constraints = pod_constraints(raw, self._ledger.names)
        kind = likeness(pod, pod_request, constraints)
        if kind not in self._alike and len(self._alike) < self._most:
            self._alike[kind] = self._explain(pod)
        return self._alike.get(kind) or Explanation(
            pod,
            PodState.UNDECIDED,
            request_summary=request_sentence(pod_request, self._unit),
            scheduler_record=scheduler_record(raw, self._snapshot.events),
            gates=constraints.gates,
            helps=(gated(constraints.gates),) if constraints.gates else (),
        )
