"""Pods with claims are in the mix, whatever comes first: pods, claims, templates or classes."""

import random
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.accounting.node_capacity import ABSENT, NodeCapacity
from gpucore.accounting.node_info import NodeInfo
from gpucore.claims.arrivals import (
    MOST_CLAIMS,
    PODS_A_STEP,
    ClaimArrivals,
    ClaimSources,
    Key,
)
from gpucore.claims.objects import CLAIM, CLASS, TEMPLATE, MissingObject
from gpucore.model import Gpu, Inventory
from gpucore.model.constraints import PodConstraints
from gpucore.scheduling.host_rooms import usual_unit
from gpucore.steps import complete
from gpucore.units import GIB, MIB, GpuIndex, MemoryUnit, NodeName, PodUid
from gpucore.wire.claim.claim_specs import (
    ClaimSpec,
    ClaimTemplate,
    DeviceChoice,
    DeviceClass,
    DeviceRequest,
)
from gpucore.wire.claim.resource_claims import ResourceClaim
from gpucore.wire.names import CLAIM_DRIVER, DEFAULT_NAMES
from gpucore.wire.pod.spec import Container, Pod, created
from gpucore.workload.arrivals import Arrival
from gpucore.workload.history import FEWEST_PODS, PodHistory
from gpucore.workload.pod_mix import PodKind

CREATED = "2026-11-26T12:00:00Z"
ON_HOST = PodConstraints(
    node_selector=(("gpu", "t4"),), requests=(("cpu", 2000), ("memory", 4 << 30))
)
SHARES = DeviceClass("shares", (f"device.driver == '{CLAIM_DRIVER}'",))
NICS = DeviceClass("nics", ("device.driver == 'nic.example.com'",))
Event = Callable[[], object]


def spec(mib: int | None, device_class: str = "shares", **more: Any) -> ClaimSpec:
    """A claim for one device."""
    choice = DeviceChoice(device_class, memory_mib=mib, **more)
    return ClaimSpec((DeviceRequest("gpu", (choice,)),))


def template(name: str, found: ClaimSpec) -> ClaimTemplate:
    """A template in the namespace of all pods."""
    return ClaimTemplate("ns", name, found)


def claim(name: str, found: ClaimSpec | None, **more: Any) -> ResourceClaim:
    """A claim in that namespace."""
    return ResourceClaim(PodUid(f"c-{name}"), "ns", name, spec=found, **more)


def pod(name: str, *, named: tuple[str, ...] = (), **more: Any) -> Pod:
    """A pod with CPU and memory; ``made`` names claims that were made from its templates."""
    made = more.pop("made", ())
    return Pod(
        uid=PodUid(name),
        namespace="ns",
        name=name,
        creation=CREATED,
        constraints=ON_HOST,
        named_claims=named,
        claims=(*named, *made),
        **more,
    )


class Cluster:
    """The objects of a cluster as they come, and the pods that are counted."""

    def __init__(self, *, limit: int = 1000, classes: bool = True) -> None:
        self.claims: dict[Key, ResourceClaim] = {}
        self.templates: dict[Key, ClaimTemplate] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.history = PodHistory()
        objects = ClaimSources(self.claims, self.templates, self.classes if classes else None)
        self.arrivals = ClaimArrivals(self.history, objects, DEFAULT_NAMES, limit=limit)
        self.pods: dict[PodUid, Pod] = {}

    def put(self, *found: Pod | ClaimTemplate | ResourceClaim | DeviceClass) -> None:
        """Objects were added or changed."""
        for each in found:
            if isinstance(each, Pod):
                self.pods[each.uid] = each
                self.arrivals.pod_changed(each)
            elif isinstance(each, DeviceClass):
                self.classes[each.name] = each
                self.arrivals.object_came(MissingObject(CLASS, each.name))
            elif isinstance(each, ClaimTemplate):
                self.templates[each.namespace, each.name] = each
                self.arrivals.object_came(MissingObject(TEMPLATE, each.name, each.namespace))
            else:
                self.claims[each.namespace, each.name] = each
                self.arrivals.object_came(MissingObject(CLAIM, each.name, each.namespace))

    def count(self) -> tuple[int, int]:
        """How many pods are counted now, and how many wait."""
        complete(self.arrivals.count())
        return len(self.history), len(self.arrivals)

    def relist(self) -> None:
        """All pods are listed again."""
        self.arrivals.pods_listed(list(self.pods.values()))

    def kinds(self, unit: MemoryUnit = GIB, *models: str) -> dict[PodKind, int]:
        """How many pods of each kind are counted, beside a crowd that makes them enough."""
        self.count()
        crowd = Arrival("ns", PodKind(gpus=8), created=created(pod("crowd")))
        for number in range(FEWEST_PODS):
            self.history.note(PodUid(f"crowd-{number}"), crowd)
        found = complete(self.history.weights(lambda one: models if one.labels else (), unit))
        assert found.pop(crowd.kind) == FEWEST_PODS
        return {kind: round(weight) for kind, weight in found.items()}


FOUR, WHOLE, NIC = spec(4096, core=25), spec(None), spec(None, "nics")
SHARE_KIND = PodKind(mem=4, core=25, cpu_milli=2000, memory_mib=4096)
WHOLE_KIND = PodKind(cpu_milli=2000, memory_mib=4096)


def test_a_pod_counts_with_the_share_of_its_claim_and_its_cpu_and_memory() -> None:
    """By its template before the claim is made, in units of the cluster, with its selector."""
    cluster = Cluster()
    cluster.put(SHARES, template("four", FOUR), pod("a", claim_templates=("four",)))
    assert cluster.kinds() == {SHARE_KIND: 1}
    in_mib = msgspec.structs.replace(SHARE_KIND, mem=4096, models=("T4",))
    assert cluster.kinds(MIB, "T4") == {in_mib: 1}


def test_an_allocated_claim_counts_with_what_it_requests() -> None:
    """An extender that starts finds claims that are allocated, and templates that are gone."""
    cluster = Cluster()
    cluster.put(SHARES, pod("waits", claim_templates=("four",)))
    cluster.put(claim("made", FOUR, allocated=True), claim("own", WHOLE, allocated=True))
    cluster.put(pod("a", claim_templates=("gone",), made=("made",)), pod("b", named=("own",)))
    assert cluster.count() == (2, 1)
    cluster.put(template("four", FOUR))
    assert cluster.kinds() == {SHARE_KIND: 2, WHOLE_KIND: 1}
    assert len(cluster.arrivals) == 0


def test_pods_of_other_drivers_and_extended_resources_are_not_counted() -> None:
    """The latter are counted by their resources; the claim is made for these."""
    cluster = Cluster()
    limits = {DEFAULT_NAMES.gpu_mem: "4"}
    cluster.put(SHARES, NICS, claim("nic", NIC), claim("own", FOUR))
    cluster.put(pod("nic", named=("nic",)), pod("none"))
    cluster.put(pod("extended", containers=(Container(limits=limits),), made=("own",)))
    assert cluster.count() == (0, 0)


def test_where_classes_are_not_read_the_names_of_the_chart_decide() -> None:
    """An extender that nominates nothing, and credentials that may not list classes."""
    cluster = Cluster(classes=False)
    cluster.put(claim("ours", spec(4096, "gpushare")), claim("other", FOUR))
    cluster.put(pod("a", named=("ours",)), pod("b", named=("other",)))
    assert cluster.count() == (1, 0)
    assert PodUid("a") in cluster.history


@pytest.mark.parametrize("missing", [FOUR, None])
def test_a_pod_that_is_deleted_while_it_waits_leaves_nothing(missing: ClaimSpec | None) -> None:
    """Neither in the mix nor in memory; a claim that cannot be read is not waited for."""
    cluster = Cluster()
    cluster.put(SHARES, waiting := pod("a", named=("own", "own-2")))
    assert cluster.count() == (0, 1)
    cluster.arrivals.pod_gone(waiting.uid)
    cluster.put(claim("own", missing), claim("own-2", FOUR))
    assert cluster.count() == (0, 0)
    cluster.put(waiting)
    assert cluster.count() == (missing is not None, 0)


def test_the_newest_state_of_a_waiting_pod_counts() -> None:
    """Its claim was made from a template that is gone, and another claim came in between."""
    cluster = Cluster()
    cluster.put(SHARES, pod("a", named=("own",), claim_templates=("gone",)))
    assert cluster.count() == (0, 1)
    cluster.put(claim("made", FOUR))
    cluster.put(pod("a", named=("own",), claim_templates=("gone",), made=("made",)))
    cluster.put(claim("own", FOUR))
    assert cluster.count() == (1, 0)


def test_a_pod_waits_for_the_class_of_its_claim() -> None:
    """Until then the driver of the claim is not known."""
    cluster = Cluster()
    cluster.put(claim("own", FOUR), pod("a", named=("own",)))
    assert cluster.count() == (0, 1)
    cluster.put(SHARES)
    assert cluster.count() == (1, 0)


def test_a_pod_that_is_deleted_before_it_is_counted_does_not_count() -> None:
    """Although all is known of it."""
    cluster = Cluster()
    cluster.put(SHARES, claim("own", FOUR), gone := pod("a", named=("own",)))
    cluster.arrivals.pod_gone(gone.uid)
    assert cluster.count() == (0, 0)


def test_a_list_without_a_waiting_pod_drops_it() -> None:
    """As its deletion would."""
    cluster = Cluster()
    cluster.put(pod("a", named=("own",)), gone := pod("b", named=("own",)))
    assert cluster.count() == (0, 2)
    del cluster.pods[gone.uid]
    cluster.relist()
    assert cluster.count() == (0, 1)


def test_a_tenant_cannot_make_it_remember_without_bound() -> None:
    """The pods that have waited longest are dropped, and those with too many claims at once."""
    cluster = Cluster(limit=5)
    cluster.put(SHARES, *(pod(f"p{number}", named=(f"c{number}",)) for number in range(9)))
    cluster.put(pod("many", named=tuple(f"m{number}" for number in range(33))))
    assert cluster.count() == (0, 5)
    cluster.put(*(claim(f"c{number}", FOUR) for number in range(9)))
    assert cluster.count() == (5, 0)
    assert not cluster.arrivals._missing


def test_all_pods_that_wait_for_one_object_are_counted_with_it() -> None:
    """Also those beyond one step."""
    cluster, count = Cluster(), 2 * PODS_A_STEP + 1
    cluster.put(SHARES, *(pod(f"p{number}", named=("own",)) for number in range(count)))
    assert cluster.count() == (0, count)
    cluster.put(claim("own", FOUR))
    assert cluster.count() == (count, 0)


def test_a_list_without_a_pod_that_is_not_counted_yet_drops_it() -> None:
    """Its deletion was missed while the watch was down."""
    cluster = Cluster()
    cluster.put(SHARES, claim("own", FOUR), gone := pod("a", named=("own",)))
    del cluster.pods[gone.uid]
    cluster.relist()
    assert cluster.count() == (0, 0)


def test_a_pod_with_as_many_claims_as_are_allowed_is_counted() -> None:
    """One more is too many."""
    cluster = Cluster()
    names = tuple(f"c{number}" for number in range(MOST_CLAIMS + 1))
    cluster.put(SHARES, *(claim(name, FOUR) for name in names))
    cluster.put(pod("most", named=names[:-1]), pod("more", named=names))
    assert cluster.count() == (1, 0)
    assert PodUid("most") in cluster.history


def test_the_unit_is_that_of_most_nodes() -> None:
    """GiB where there are no nodes with GPUs."""
    small, large = (on_one_gpu(f"n-{unit}", unit) for unit in (GIB, MIB))
    assert complete(usual_unit(())) == GIB
    assert complete(usual_unit((NodeInfo(NodeName("none"), ABSENT),))) == GIB
    assert complete(usual_unit((small, large, large))) == MIB
    assert complete(usual_unit((small, large, small))) == GIB


def on_one_gpu(name: str, unit: MemoryUnit) -> NodeInfo:
    """A node that counts in this unit."""
    inventory = Inventory((Gpu(GpuIndex(0), "GPU-0", units=15),), unit=unit)
    return NodeInfo(NodeName(name), NodeCapacity(inventory=inventory))


# Any order gives the same mix.

OBJECTS: dict[str, list[Any]] = {
    "class-ours": [SHARES],
    "class-other": [NICS],
    "template-four": [template("four", FOUR)],
    "template-nic": [template("nic", NIC)],
    "claim-shared": [claim("shared", WHOLE), claim("shared", WHOLE, allocated=True)],
    "claim-made": [claim("made", FOUR), claim("made", FOUR, allocated=True)],
    "claim-made-nic": [claim("made-nic", NIC, allocated=True)],
    "pod-template": [
        pod("template", claim_templates=("four",)),
        pod("template", claim_templates=("four",), made=("made",), phase="Running"),
        pod("template", claim_templates=("four",), made=("made",), phase="Succeeded"),
    ],
    "pod-shared-1": [pod("shared-1", named=("shared",))],
    "pod-shared-2": [pod("shared-2", named=("shared",)), pod("shared-2", named=("shared",))],
    "pod-both": [
        pod("both", named=("shared",), claim_templates=("nic",)),
        pod("both", named=("shared",), claim_templates=("nic",), made=("made-nic",)),
    ],
    "pod-nic": [pod("nic", claim_templates=("nic",), made=("made-nic",))],
}
EXPECTED = {SHARE_KIND: 1, WHOLE_KIND: 3}


def in_any_order(chance: random.Random) -> Iterable[Any]:
    """All events; those of one object in their order."""
    left = [list(events) for events in OBJECTS.values()]
    while left := [events for events in left if events]:
        yield chance.choice(left).pop(0)


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_the_mix_does_not_depend_on_the_order_of_events(seed: int) -> None:
    """With lists in between, and whatever is deleted afterwards."""
    cluster, chance = Cluster(), random.Random(seed)
    for event in in_any_order(chance):
        cluster.put(event)
        if chance.random() < 0.1:
            cluster.relist()
        if chance.random() < 0.3:
            cluster.count()
    assert cluster.kinds() == EXPECTED
    assert cluster.count()[1] == 0
    cluster.claims.clear()
    cluster.templates.clear()
    for uid in list(cluster.pods):
        cluster.arrivals.pod_gone(uid)
    assert cluster.kinds() == EXPECTED
