"""What prepared claims hold of the GPUs of a node, by GPU, pod and claim."""

import msgspec
from nodepods import make_gpu

from gpucore.model import Gpu
from gpucore.node.claims.allocations import allocations
from gpucore.node.claims.held import HeldClaims
from gpucore.node.claims.prepared import PreparedClaim, PreparedDevice
from gpucore.units import NodeName, PodUid
from gpucore.wire.claim.devices import device_name
from gpucore.wire.claim.prepared import AllocatedClaim
from gpucore.wire.claim.resource_claims import DeviceShare
from gpucore.wire.names import CLAIM_DRIVER
from gpucore.wire.pod.spec import Pod

GIBIBYTE = 1 << 30
GPUS = tuple(
    msgspec.structs.replace(make_gpu(index), units=16, memory_mib=16 * 1024) for index in range(2)
)


def claim(uid: str, *gpus: Gpu, memory: int | None = 4 * GIBIBYTE) -> PreparedClaim:
    """The claim ``c-<uid>`` of namespace ``ns``, with a share of each of these GPUs."""
    shares = tuple(
        DeviceShare("gpu", CLAIM_DRIVER, "n1", device_name(gpu), "s", memory=memory) for gpu in gpus
    )
    devices = tuple(
        PreparedDevice("gpu", "n1", device_name(gpu), "s", (), gpu.uuid) for gpu in gpus
    )
    return PreparedClaim("ns", f"c-{uid}", AllocatedClaim(uid, shares), devices, "")


def pod(name: str, *claims: str, namespace: str = "ns", phase: str = "Running") -> Pod:
    """A pod that uses these claims."""
    return Pod(PodUid(name), namespace, name, phase=phase, claims=claims)


def test_a_claim_is_held_from_prepare_to_unprepare() -> None:
    """Each change is reported once, so that nothing is published twice."""
    held = HeldClaims()
    assert (held.put(claim("u", GPUS[0])), held.put(claim("u", GPUS[0]))) == (True, False)
    assert (bool(held), "u" in held) == (True, True)
    assert (held.on(GPUS[0].uuid), held.on(GPUS[1].uuid)) == (True, False)
    assert (held.drop("u"), held.drop("u")) == (True, False)
    assert not held
    assert not held.on(GPUS[0].uuid)


def test_a_claim_that_was_allocated_anew_is_news() -> None:
    """It has the same UID and holds another GPU."""
    held = HeldClaims()
    held.put(claim("u", GPUS[0]))
    assert held.put(claim("u", GPUS[1]))
    assert (held.on(GPUS[0].uuid), held.on(GPUS[1].uuid)) == (False, True)


def test_a_pod_whose_claim_is_on_another_gpu_holds_nothing_of_this_one() -> None:
    """It is left out; it gets no limit of 0 and no events of that GPU."""
    held = HeldClaims()
    held.put(claim("1", GPUS[0]))
    assert held.bytes_on(GPUS[1], [pod("a", "c-1")]) == {}


def test_allocations_follow_the_gpu_and_not_its_index() -> None:
    """After the driver counted the GPUs anew a claim is on the GPU that it was given."""
    held = HeldClaims()
    held.put(claim("u", GPUS[0]))
    swapped = [
        msgspec.structs.replace(gpu, index=other.index)
        for gpu, other in zip(GPUS, GPUS[::-1], strict=True)
    ]
    (before,) = allocations(held, NodeName("n1"), GPUS)
    (after,) = allocations(held, NodeName("n1"), swapped)
    assert before.placement.mem == {GPUS[0].index: 4096}
    assert after.placement.mem == {GPUS[1].index: 4096}
    assert allocations(held, NodeName("n2"), GPUS) == []


def test_a_pod_holds_what_its_claims_hold() -> None:
    """Several claims add up; a claim of another namespace with the same name is none of it."""
    held = HeldClaims()
    held.put(claim("1", *GPUS))
    held.put(claim("2", GPUS[0], memory=GIBIBYTE))
    pods = [pod("a", "c-1", "c-2"), pod("b", "c-1", namespace="other"), pod("c")]
    assert held.bytes_on(GPUS[0], pods) == {"a": 5 * GIBIBYTE}
    assert held.bytes_on(GPUS[1], pods) == {"a": 4 * GIBIBYTE}


def test_a_claim_that_was_deleted_adds_nothing_to_its_namesake() -> None:
    """Its pod was deleted by force and still runs, so that kubelet has yet to unprepare it.

    It holds its GPU until then, but the pod of the new claim has the new claim alone.
    """
    held = HeldClaims()
    first, second = claim("old", *GPUS), claim("new", GPUS[0], memory=GIBIBYTE)
    held.put(first)
    held.put(msgspec.structs.replace(second, name=first.name))
    held.put(first)  # counted again
    pods = [pod("a", first.name)]
    assert held.bytes_on(GPUS[0], pods) == {"a": GIBIBYTE}
    assert held.bytes_on(GPUS[1], pods) == {}
    assert held.on(GPUS[1].uuid)


def test_pods_that_share_a_claim_have_equal_parts_and_never_more_than_the_claim() -> None:
    """A namespace can let several pods use one claim; a limit for each must not multiply it."""
    held = HeldClaims()
    held.put(claim("1", GPUS[0]))
    pods = [pod(name, "c-1") for name in ("a", "b", "c")] + [pod("ended", "c-1", phase="Succeeded")]
    parts = held.bytes_on(GPUS[0], pods)
    assert set(parts) == {"a", "b", "c"}
    assert sum(parts.values()) <= 4 * GIBIBYTE
    assert len(set(parts.values())) == 1


def test_a_claim_without_a_share_holds_the_whole_gpu() -> None:
    """As an exclusive GPU without consumed capacity."""
    held = HeldClaims()
    held.put(claim("1", GPUS[1], memory=None))
    assert held.bytes_on(GPUS[1], [pod("a", "c-1")]) == {"a": 16 * GIBIBYTE}


def test_the_names_of_claims_and_their_users_are_those_of_their_namespace() -> None:
    """A pod uses a claim where one of several is prepared; a namesake elsewhere does not."""
    held = HeldClaims()
    held.put(claim("1", GPUS[0]))
    held.put(claim("2", GPUS[0]))
    assert held.names == ["ns/c-1", "ns/c-2"]
    assert held.uses(pod("a", "c-9", "c-2"))
    assert not held.uses(pod("a", "c-9"))
    assert not held.uses(pod("a", "c-2", namespace="other"))


def test_an_allocation_is_that_of_its_claim() -> None:
    """The ledger keeps it by the claim's UID, and shows its namespace and name."""
    held = HeldClaims()
    held.put(claim("u", GPUS[0]))
    (found,) = allocations(held, NodeName("n1"), GPUS)
    assert (found.uid, found.namespace, found.name) == ("u", "ns", "c-u")
