"""``gpushare verify`` in the cluster: off by default, the quick rows only, and few rights."""

from typing import Any

import pytest
from admission import Policy, held_by, labelled, pod, request
from charting import NAMESPACE, Object, Rendered, render
from test_security import granted

from gpucore.wire.names import VERIFIED
from gpuinspect.verify import objects

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:gpushare-verify"
PLACE = objects.RunPlace(namespace=NAMESPACE, own=False, image="i", node="n1", run="a", seconds=1)
CHECK = objects.pod(PLACE, "share", [], {"aliyun.com/gpu-mem": 1}, seconds=60)
GUARD = objects.guard(PLACE)
CONFINED: Object = {"allowPrivilegeEscalation": False}


def chart(**values: Any) -> Rendered:
    """The chart with its CronJob."""
    return render(values={"verify": {"schedule": "17 4 * * *", **values}})


def test_it_is_off_by_default() -> None:
    """No upgrade of the chart begins to take shares."""
    names = [item["metadata"]["name"] for item in render().objects]
    assert not [name for name in names if name.endswith("verify")]


def test_the_schedule_runs_the_quick_rows_and_records_them() -> None:
    """In the namespace of the release, where it may create pods."""
    job = chart().one("CronJob", "-verify")["spec"]
    assert job["schedule"] == "17 4 * * *"
    assert job["jobTemplate"]["spec"]["activeDeadlineSeconds"] > 240
    (container,) = job["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [
        "verify",
        "--only=quick",
        "--timeout=240",
        f"--namespace={NAMESPACE}",
        "--scheduler=gpushare-scheduler",
        "--resource-domain=aliyun.com",
        "--annotation-prefix=ALIYUN_COM",
        "--record",
    ]


def test_it_may_create_pods_in_its_own_namespace_only() -> None:
    """Of the cluster it lists; events on nodes are in the namespace default."""
    rendered = chart()
    assert granted(rendered.one("ClusterRole", "-verify")) == {
        ("", "nodes"): {"list"},
        ("", "pods"): {"list"},
        ("resource.k8s.io", "resourceslices"): {"list"},
        ("resource.k8s.io", "resourceclaims"): {"list"},
    }
    roles = {
        item["metadata"]["namespace"]: granted(item)
        for item in rendered.objects
        if item["kind"] == "Role" and "-verify" in item["metadata"]["name"]
    }
    assert roles == {
        NAMESPACE: {
            ("", "pods"): {"create", "get", "delete", "patch"},
            ("", "pods/log"): {"get"},
            ("batch", "jobs"): {"create", "get", "delete"},
        },
        "default": {("", "events"): {"create"}},
    }


def test_helm_test_runs_the_same_rows_where_it_is_enabled() -> None:
    """It records nothing: a test is no monitoring."""
    rendered = render(values={"verify": {"helmTest": True}})
    pod = rendered.one("Pod", "-test-verify")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,) = pod["spec"]["containers"]
    assert "--only=quick" in container["args"]
    assert "--record" not in container["args"]
    assert pod["spec"]["serviceAccountName"] == "gpushare-verify"


def asked(verb: str, item: Object, *, resource: str = "pods", user: str = ACCOUNT) -> str:
    """Why the API server refuses to create or delete the object; empty where it does not."""
    before, after = (item, {}) if verb == "DELETE" else (None, item)
    made = request(user, resource=resource, verb=verb)
    return Policy(chart(), "-verify-pods").refuses(made, before, after)


def changed(item: Object, **spec: object) -> Object:
    """The pod with these fields of its specification."""
    return item | {"spec": item["spec"] | spec}


def container(**fields: object) -> Object:
    """The specification of a check whose container has these fields."""
    return {"containers": [CHECK["spec"]["containers"][0] | fields]}


def templated(spec: Object, **metadata: object) -> Object:
    """The guard with this pod template."""
    template = GUARD["spec"]["template"]
    template = {"metadata": template["metadata"] | metadata, "spec": template["spec"] | spec}
    return GUARD | {"spec": GUARD["spec"] | {"template": template}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (held_by(pod(team="a"), annotations={"team": "a", VERIFIED: "{}"}), ""),
        (pod(team="b"), "nothing of a pod but"),
        (pod(image="evil", team="a"), "nothing of a pod but"),
        (held_by(pod(team="a"), labels={"role": "y"}), "nothing of a pod but"),
        (held_by(pod(team="a"), finalizers=["evil/stay"]), "no finalizers"),
        (held_by(pod(team="a"), ownerReferences=[{"kind": "Node", "uid": "0"}]), "owner"),
    ],
)
def test_a_stolen_token_writes_the_results_and_nothing_else(after: Object, sentence: str) -> None:
    """The right to patch pods would permit other images and labels."""
    policy = Policy(chart(), "-verify")
    found = policy.refuses(request(ACCOUNT), pod(team="a"), after)
    assert sentence in found
    assert bool(sentence) == bool(found)
    assert policy.refuses(request("jane"), pod(team="a"), after) == ""


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["CREATE", "DELETE"])
def test_it_creates_and_deletes_its_own_objects_only(verb: str) -> None:
    """Those that the command makes, not pods of the stack; others are not limited by it."""
    assert asked(verb, CHECK) == ""
    assert asked(verb, GUARD, resource="jobs") == ""
    stack = labelled(CHECK, "app.kubernetes.io/name", "gpushare")
    both = held_by(CHECK, labels=CHECK["metadata"]["labels"] | stack["metadata"]["labels"])
    for foreign in (held_by(CHECK, labels={}), stack, both):
        assert "with the label" in asked(verb, foreign)
        assert asked(verb, foreign, user="jane") == ""


@pytest.mark.slow
def test_it_deletes_its_pods_with_what_other_webhooks_have_added() -> None:
    """A service mesh or the platform may add init containers and volumes to every pod."""
    volume = {"name": "a", "secret": {"secretName": "mesh"}}
    spec = {**CHECK["spec"], "volumes": [volume], "initContainers": [{"name": "mesh"}]}
    assert asked("DELETE", {**CHECK, "spec": spec}) == ""
    assert asked("CREATE", {**CHECK, "spec": spec}) != ""


@pytest.mark.slow
def test_the_pods_of_its_jobs_are_not_those_of_the_stack_either() -> None:
    """A Service of the stack selects pods by label."""
    labels = {**objects.labels("guard"), "app.kubernetes.io/name": "gpushare"}
    assert "with the label" in asked("CREATE", templated({}, labels=labels), resource="jobs")


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        {"serviceAccountName": "gpushare-device-plugin"},
        {"hostPID": True},
        {"hostNetwork": True},
        {"volumes": [{"name": "a", "secret": {"secretName": "gpushare-authorities"}}]},
        {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]},
        {"initContainers": [{"name": "a"}]},
        container(securityContext={"privileged": True}),
        container(securityContext={"allowPrivilegeEscalation": True}),
        container(securityContext=CONFINED | {"capabilities": {"add": ["SYS_MODULE"]}}),
        container(ports=[{"containerPort": 1, "hostPort": 10250}]),
        container(envFrom=[{"secretRef": {"name": "gpushare-authorities"}}]),
        container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
        {"nodeName": "gpu-a"},
        {"priorityClassName": "system-node-critical"},
        {"securityContext": {}},
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        container(securityContext=CONFINED | {"seccompProfile": {"type": "Unconfined"}}),
    ],
)
def test_a_stolen_token_runs_no_pod_with_other_rights(spec: Object) -> None:
    """Neither itself nor by a Job: accounts, Secrets and directories of nodes are out of reach."""
    assert "without another account" in asked("CREATE", changed(CHECK, **spec))
    assert "without another account" in asked("CREATE", templated(spec), resource="jobs")


@pytest.mark.slow
def test_its_pods_may_have_the_default_priority_class_of_the_cluster() -> None:
    """The API server adds it to every pod without one, before it asks policies."""
    assert asked("CREATE", changed(CHECK, priorityClassName="default", priority=10)) == ""
