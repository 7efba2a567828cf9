"""What a pod requests, by kubelet's formula."""

import time

import msgspec
import pytest
from corebuilders import NAMES, limits, pod, pod_request

from gpucore.model import ContainerRequest, IsolationMode
from gpucore.wire import names as wire_names
from gpucore.wire.constraints import pod_constraints
from gpucore.wire.errors import WireError
from gpucore.wire.names import Names
from gpucore.wire.pod.allocations import allocation_of
from gpucore.wire.pod.requests import MOST_ANNOTATION_BYTES
from gpucore.wire.pod.spec import Container, Pod, decode_pod
from gpucore.wire.whole_requests import pod_request_of


def init(mem: int, *, sidecar: bool = False) -> Container:
    """An init container, or a restartable one."""
    return Container(limits=limits(mem), restart_policy="Always" if sidecar else "")


def with_inits(of: Pod, *inits: Container) -> Pod:
    """The pod with these init containers."""
    return msgspec.structs.replace(of, init_containers=inits)


@pytest.mark.parametrize(
    ("inits", "effective"),
    [
        ((), 5),
        ((init(4),), 5),
        ((init(7),), 7),
        ((init(7), init(6)), 7),
        ((init(2, sidecar=True),), 7),
        ((init(2, sidecar=True), init(4)), 7),
        ((init(2, sidecar=True), init(6)), 8),
        ((init(6), init(2, sidecar=True)), 7),
        ((init(2, sidecar=True), init(5), init(3, sidecar=True)), 10),
        ((init(2, sidecar=True), init(3, sidecar=True), init(9)), 14),
        ((init(9, sidecar=True),), 14),
    ],
)
def test_init_containers_and_sidecars(inits: tuple[Container, ...], effective: int) -> None:
    """Largest of: containers with all sidecars; an init container with the sidecars before it."""
    assert pod_request(with_inits(pod("p", (2, 3)), *inits)).mem == effective


def test_only_init_containers_ask() -> None:
    """A pod whose init container alone requests GPUs requests them."""
    requested = pod_request(with_inits(pod("p"), init(4)))
    assert requested.mem == 4
    assert requested.containers == (ContainerRequest(),)


def test_sidecars_alone_peak_before_the_last_starts() -> None:
    """Sidecars add up with one another when no container requests."""
    sidecars = init(2, sidecar=True), init(3, sidecar=True)
    assert pod_request(with_inits(pod("p"), *sidecars)).mem == 5


def test_each_resource_has_its_own_maximum() -> None:
    """Compute of one container and memory of another are not mixed."""
    inits = Container(limits=limits(mem=1, core=90)), Container(limits=limits(mem=9, core=10))
    requested = pod_request(with_inits(pod("p", 3, core=20), *inits))
    assert (requested.mem, requested.core) == (9, 90)


def test_a_pod_without_gpus_requests_nothing() -> None:
    """No limit, or a limit of zero, is no demand."""
    zero = Container(limits={NAMES.gpu_mem: "0"})
    assert pod_request_of(pod("p"), NAMES) is None
    assert pod_request_of(msgspec.structs.replace(pod("p"), containers=(zero,)), NAMES) is None


def test_requests_are_not_read() -> None:
    """Only limits count: the API server makes requests equal."""
    requests = {"containers": [{"name": "c", "resources": {"requests": limits(8)}}]}
    item = {"metadata": {"uid": "u", "namespace": "ns", "name": "p"}, "spec": requests}
    assert pod_request_of(decode_pod(msgspec.json.encode(item)), NAMES) is None


def test_the_domain_is_a_parameter() -> None:
    """Another domain reads other resources and its own gpu-count label."""
    mine = Names(domain="example.com", prefix="EXAMPLE")
    requests = (Container(limits={"example.com/gpu-mem": "6"}),)
    labels = {"example.com/gpu-count": "3", "aliyun.com/gpu-count": "2"}
    requested = pod_request_of(
        msgspec.structs.replace(pod("p", labels=labels), containers=requests), mine
    )
    assert requested is not None
    assert (requested.mem, requested.gpu_count) == (6, 3)
    assert pod_request_of(pod("p", 6), mine) is None


def test_canonical_amounts_are_read() -> None:
    """32000 units that the API server writes as 32k are 32000 units."""
    requests = Container(limits={NAMES.gpu_mem: "32k"})
    assert pod_request(msgspec.structs.replace(pod("p"), containers=(requests,))).mem == 32_000


@pytest.mark.parametrize(("text", "units"), [("717E", 0), ("18446744073709551618", 2)])
def test_an_amount_that_overflows_is_what_kubelet_allocates(text: str, units: int) -> None:
    """Kubelet runs such a pod of ``spec.nodeName``, which would keep every GPU of its node."""
    requests = Container(limits={NAMES.gpu_mem: text})
    item = msgspec.structs.replace(pod("p", node="n"), containers=(requests,))
    held = allocation_of(item, NAMES)
    assert (held.pending if held else 0) == units


def test_an_amount_that_is_none_is_the_modules_error() -> None:
    """A limit that no API server accepts is a WireError."""
    requests = Container(limits={NAMES.gpu_mem: "many"})
    with pytest.raises(WireError):
        pod_request_of(msgspec.structs.replace(pod("p"), containers=(requests,)), NAMES)


def test_wishes_are_read_from_labels_and_annotations() -> None:
    """GPUs to spread over, whole device, isolation and policy."""
    requested = pod_request(
        pod(
            "p",
            8,
            labels={NAMES.gpu_count: "2", wire_names.LABEL_REQUIRE_WHOLE: "require-whole-device"},
            annotations={wire_names.ISOLATION: "mps", wire_names.POLICY: "spread"},
        )
    )
    assert (requested.gpu_count, requested.whole_device, requested.isolation) == (
        2,
        True,
        IsolationMode.MPS,
    )
    assert (requested.policy, requested.fault) == ("spread", "")


def test_wishes_default_to_the_originals_behaviour() -> None:
    """Without labels and annotations: one GPU, shared, unprotected, the node's policy."""
    requested = pod_request(pod("p", 8, labels={wire_names.LABEL_REQUIRE_WHOLE: "other"}))
    assert (requested.gpu_count, requested.whole_device, requested.isolation) == (
        1,
        False,
        IsolationMode.NONE,
    )
    assert (requested.policy, requested.fault) == ("", "")


@pytest.mark.parametrize("count", ["0", "-1", "two", "", "1024", " 2"])
def test_a_count_that_is_none_is_a_fault(count: str) -> None:
    """A label that is no number of GPUs makes a request with a fault."""
    requested = pod_request(pod("p", 8, labels={NAMES.gpu_count: count}))
    fault = "its label aliyun.com/gpu-count is not a number of GPUs from 1 to 1023"
    assert requested.fault == fault
    assert requested.gpu_count == 1


def test_both_modes_are_demanded_by_either_spelling() -> None:
    """The one that a label can have is read in annotations too."""
    for text in ("driver+mps", "driver-mps"):
        requested = pod_request(pod("p", 8, annotations={wire_names.ISOLATION: text}))
        assert (requested.isolation, requested.fault) == (IsolationMode.DRIVER_MPS, "")


@pytest.mark.parametrize(
    ("inits", "mems", "count", "fault"),
    [
        (
            (init(8),),
            (4,),
            2,
            "requests memory of 8, and the container after it 4",
        ),
        ((init(8),), (4, 4), 2, "an init container requests memory of 8"),
        ((init(8), init(4)), (8,), 2, "the container after it 4"),
        ((init(8), init(4, sidecar=True)), (8,), 2, "the container after it 4"),
        ((init(4), init(6)), (0, 6, 2), 2, ""),
        ((init(8, sidecar=True),), (4,), 2, ""),
        ((init(8),), (8,), 2, ""),
        ((init(8),), (4,), 1, ""),
    ],
)
def test_over_several_gpus_an_init_container_requests_no_more_than_the_next_one(
    inits: tuple[Container, ...], mems: tuple[int, ...], count: int, fault: str
) -> None:
    """Kubelet gives the next one any of its devices, which may all be of one GPU."""
    labels = {NAMES.gpu_count: str(count)}
    found = pod_request(with_inits(pod("p", mems, labels=labels), *inits)).fault
    assert fault in found
    assert bool(fault) is bool(found)


def test_an_unknown_isolation_is_a_fault() -> None:
    """A pod that demands protection nobody knows is not run without."""
    requested = pod_request(pod("p", 8, annotations={wire_names.ISOLATION: "cgpu"}))
    assert (
        requested.fault
        == "its isolation 'cgpu' is unknown; use none or mps or driver or driver+mps"
    )


def test_an_unknown_policy_is_a_fault() -> None:
    """A misspelt policy is reported, not guessed."""
    requested = pod_request(pod("p", 8, annotations={wire_names.POLICY: "bin-pack"}))
    words = "its policy 'bin-pack' is unknown; use one of binpack, spread, fragmentation"
    assert requested.fault == words
    assert requested.policy == ""


@pytest.mark.parametrize("more", [{"core": 10, "gpus": 1}, {"gpus": 1}])
def test_shares_and_whole_gpus_at_once_are_a_fault(more: dict[str, int]) -> None:
    """A pod requests one kind; both amounts are still known."""
    requested = pod_request(pod("p", 8, **more))
    assert requested.fault == "it requests both exclusive GPUs and shares; request only one"
    assert (requested.mem, requested.gpus) == (8, 1)


def test_annotations_that_leave_no_room_for_ours_are_a_fault() -> None:
    """The API server merges ours without a look at the size, and then refuses every status."""
    most = MOST_ANNOTATION_BYTES - 16 * 1024
    full = pod("p", 8, annotations={"note": "ä" * ((most - 4) // 2)})
    assert pod_request(full).fault == ""
    larger = msgspec.structs.replace(full, annotations=full.annotations | {"n": "x"})
    assert pod_request(larger).fault == (
        f"its annotations have {most + 2} bytes, which leaves no room for those that record its "
        f"GPUs; use at most {most}"
    )
    assert pod_request(larger).mem == 8
    assert pod_request(msgspec.structs.replace(larger, node="n")).fault == ""


def test_many_sidecars_with_resources_of_their_own_are_summed_in_time_of_their_number() -> None:
    """One such pod of 1 MB, which any tenant may create, would stop the extender for seconds."""
    sidecars = [
        {
            "name": f"s{n}",
            "restartPolicy": "Always",
            "resources": {"requests": {f"example.com/{n}-{each}": "1" for each in range(40)}},
        }
        for n in range(999)
    ]
    spec = {"containers": [{"name": "c"}], "initContainers": sidecars}
    raw = msgspec.json.encode({"metadata": {"uid": "u", "name": "p"}, "spec": spec})
    begin = time.process_time()
    constraints = pod_constraints(raw, NAMES)
    assert time.process_time() - begin < 2
    assert len(constraints.requests) == 999 * 40
