"""The policy of the extender's account: one annotation, and the status of kube-scheduler."""

import pytest
from admission import Policy, held_by, pod, request
from charting import NAMESPACE, Object, render

from gpucore.wire.names import RETRY

pytestmark = pytest.mark.slow

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:gpushare-"
STATUS: Object = {
    "phase": "Pending",
    "podIP": "192.0.2.1",
    "conditions": [{"type": "Ready", "status": "False"}],
}
REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
READY = {"type": "Ready", "status": "True"}


def answer(mode: str, after: Object) -> str:
    """The answer to an update of a pending pod by the account that runs the extender."""
    values: Object = {"admissionPolicy": {"enabled": True}, "scheduler": {"mode": mode}}
    if mode == "extender":
        values["extender"] = {"tls": {"enabled": False}}
    user = ACCOUNT + ("scheduler" if mode == "second" else "extender")
    policy = Policy(render("1.33.0", values), "-extender")
    return policy.refuses(request(user), waiting(), after)


def waiting(**status: object) -> Object:
    """A pending pod of a tenant, with these fields of its status changed."""
    item = held_by(pod(node="", team="a"), labels={"app": "x"}, finalizers=["x/y"])
    return item | {"status": STATUS | status}


def annotated(annotations: Object) -> Object:
    """The pending pod with these annotations alone."""
    return held_by(waiting(), annotations=annotations)


@pytest.mark.parametrize("mode", ["extender", "second"])
def test_the_extender_writes_the_retry_annotation(mode: str) -> None:
    """The patch that makes kube-scheduler retry a pod passes, the first time and again."""
    assert answer(mode, annotated({"team": "a", RETRY: "1"})) == ""


@pytest.mark.parametrize("mode", ["extender", "second"])
@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (annotated({"team": "b"}), "no annotation but"),
        (annotated({}), "no annotation but"),
        (annotated({"team": "a", "x": "1"}), "no annotation but"),
        (held_by(waiting(), labels={"app": "x", "role": "y"}), "no labels"),
        (held_by(waiting(), labels={}), "no labels"),
        (held_by(waiting(), finalizers=[]), "no finalizers"),
        (held_by(waiting(), finalizers=["x/y", "evil/stay"]), "no finalizers"),
        (held_by(waiting(), ownerReferences=[{"kind": "Node", "uid": "0"}]), "owner references"),
        (waiting(phase="Failed"), "status"),
        (waiting(podIP="192.0.2.66"), "status"),
        (waiting(hostIP="192.0.2.66"), "status"),
        (waiting(conditions=[READY]), "status"),
        (waiting(conditions=[]), "status"),
        (waiting() | {"status": {}}, "status"),
        (waiting() | {"status": {k: STATUS[k] for k in STATUS if k != "podIP"}}, "status"),
    ],
)
def test_a_stolen_token_changes_nothing_else_of_a_pod(
    mode: str, after: Object, sentence: str
) -> None:
    """Labels, other annotations, finalizers, owners, the phase, addresses and readiness stay."""
    assert sentence in answer(mode, after)


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [*STATUS["conditions"], REFUSED]},
        {"nominatedNodeName": "n1"},
        {"extendedResourceClaimStatus": {"resourceClaimName": "c"}},
        {"conditions": [*STATUS["conditions"], {"type": "DisruptionTarget", "status": "True"}]},
    ],
)
def test_kube_scheduler_writes_its_status_in_mode_second_alone(status: Object) -> None:
    """In mode second the account is kube-scheduler's too; in mode extender it writes no status."""
    assert answer("second", waiting(**status)) == ""
    assert "only nominatedNodeName" in answer("extender", waiting(**status))


def requesting(resource: str, **spec: object) -> Object:
    """A pending pod whose container has a limit of this resource."""
    item = waiting()
    limited = {"name": "c", "image": "a", "resources": {"limits": {resource: "1"}}}
    return item | {"spec": {"containers": [limited]} | spec}


def nominated(
    before: Object, nominate: str = "refused", *, claims: bool = False, **status: object
) -> str:
    """The answer in mode extender when this pod is nominated."""
    extender: Object = {"tls": {"enabled": False}, "nominate": nominate, "claims": claims}
    values: Object = {"scheduler": {"mode": "extender"}, "extender": extender}
    policy = Policy(render("1.36.0" if claims else "1.33.0", values), "-extender")
    after = before | {"status": before["status"] | {"nominatedNodeName": "n1"} | status}
    return policy.refuses(request(ACCOUNT + "extender"), before, after)


def test_in_mode_extender_only_pending_pods_that_request_shares_are_nominated() -> None:
    """Not other pods, not bound ones, and no other field beside it."""
    share = requesting("aliyun.com/gpu-mem")
    assert nominated(share) == ""
    assert nominated(requesting("aliyun.com/gpu")) == ""
    sidecar = requesting("cpu", initContainers=share["spec"]["containers"])
    assert nominated(sidecar) == ""
    assert "only nominatedNodeName" in nominated(requesting("nvidia.com/gpu"))
    assert "only nominatedNodeName" in nominated(requesting("aliyun.com/gpu-mem", nodeName="n2"))
    assert "only nominatedNodeName" in nominated(share, phase="Failed")


def test_where_claims_are_read_pods_with_claims_are_nominated_too() -> None:
    """Their GPUs are in no limit of a container."""
    claim = {"name": "gpu", "resourceClaimName": "c"}
    pod = requesting("cpu", resourceClaims=[claim])
    assert nominated(pod, claims=True) == ""
    assert nominated(requesting("aliyun.com/gpu-mem"), claims=True) == ""
    assert "only nominatedNodeName" in nominated(pod)
    assert "only nominatedNodeName" in nominated(requesting("cpu"), claims=True)


def test_where_nominating_is_off_the_extender_writes_no_status() -> None:
    """The right is given with the feature."""
    share = requesting("aliyun.com/gpu-mem")
    assert "does not change the status" in nominated(share, nominate="off")


@pytest.mark.parametrize("mode", ["extender", "second"])
def test_a_pod_without_status_and_metadata_is_compared_too(mode: str) -> None:
    """Absent maps count as empty."""
    values: Object = {"scheduler": {"mode": mode}}
    if mode == "extender":
        values["extender"] = {"tls": {"enabled": False}}
    policy = Policy(render("1.33.0", values), "-extender")
    user = ACCOUNT + ("scheduler" if mode == "second" else "extender")
    bare: Object = {"metadata": {"name": "p"}, "spec": {}}
    assert policy.refuses(request(user), bare, held_by(bare, annotations={RETRY: "1"})) == ""
    assert "annotation" in policy.refuses(request(user), bare, held_by(bare, annotations={"x": ""}))


def test_others_are_not_held_to_it() -> None:
    """Other accounts write status as before."""
    policy = Policy(render("1.33.0", {}), "-extender")
    assert policy.refuses(request("system:node:n1"), waiting(), waiting(phase="Running")) == ""
