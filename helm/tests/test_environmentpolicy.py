"""The policy against variables that replace the GPU or the limit that gpushare sets."""

import pytest
from admission import TENANT, Policy, request
from charting import NAMESPACE, Object, Rendered, render

from gpucore.wire import names

pytestmark = pytest.mark.slow

SHARE: Object = {"resources": {"limits": {"aliyun.com/gpu-mem": "1"}}}
NO_SHARE: Object = {"resources": {"limits": {"aliyun.com/gpu-mem": "0", "aliyun.com/gpu": "0"}}}
VISIBLE: Object = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}


@pytest.fixture(scope="module")
def policy() -> Policy:
    """The policy as a default install has it."""
    return Policy(render("1.33.0"), "-environment")


def pod(*boxes: Object, **spec: object) -> Object:
    """A pod with these containers."""
    containers = [{"name": f"c{place}", **box} for place, box in enumerate(boxes)]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}


def made(policy: Policy, item: Object) -> str:
    """Why the API server refuses to create the pod; empty where it does not."""
    return policy.refuses(request(TENANT, verb="CREATE"), None, item)


def prefixed(prefix: str) -> Object:
    """A container that takes all keys of a ConfigMap, with a prefix."""
    return {"envFrom": [{"prefix": prefix, "configMapRef": {"name": "c"}}]}


@pytest.mark.parametrize(
    "item",
    [
        pod({**SHARE, "env": [VISIBLE]}),
        pod(SHARE, {"env": [VISIBLE]}),
        pod({"env": [VISIBLE]}),
        pod({"env": [{"name": "A", "value": "b"}, VISIBLE]}),
        pod(SHARE, initContainers=[{"name": "i", "env": [VISIBLE]}]),
        pod({"env": [{"name": VISIBLE["name"], "valueFrom": {"configMapKeyRef": {"key": "x"}}}]}),
        pod({"env": [{"name": VISIBLE["name"], "value": "$(OTHER)"}]}),
        pod({"env": [{"name": VISIBLE["name"], "value": "void"}, VISIBLE]}),
        pod({"env": [{"name": VISIBLE["name"]}]}),
        pod(prefixed("NVIDIA_")),
        pod(prefixed("NVIDIA_V")),
        pod({**SHARE, **prefixed("NVIDIA_V")}),
    ],
    ids=[
        "requesting",
        "sibling",
        "requests nothing",
        "second",
        "init",
        "from",
        "expanded",
        "twice",
        "empty",
        "prefix",
        "longer prefix",
        "requesting and longer prefix",
    ],
)
def test_no_pod_chooses_its_gpus(policy: Policy, item: Object) -> None:
    """In no container and in no spelling, whether the pod requests GPUs or not."""
    assert "NVIDIA_VISIBLE_DEVICES" in made(policy, item)


@pytest.mark.parametrize("name", [*sorted(names.LIMITING_ENV)])
@pytest.mark.parametrize("resource", ["gpu-mem", "gpu-core.percentage", "gpu"])
def test_no_pod_replaces_a_limit(policy: Policy, name: str, resource: str) -> None:
    """Also where another container of the pod requests the share."""
    requesting: Object = {"resources": {"limits": {f"aliyun.com/{resource}": "1"}}}
    sets: Object = {"env": [{"name": name, "value": "1"}]}
    for item in (
        pod({**requesting, **sets}),
        pod(requesting, sets),
        pod(sets, initContainers=[{"name": "i", **requesting}]),
    ):
        assert name in made(policy, item)
    assert "choose another prefix" in made(policy, pod({**requesting, **prefixed(name[:5])}))
    assert made(policy, pod(sets)) == ""


@pytest.mark.parametrize(
    "item",
    [
        pod({}),
        pod({**SHARE, "env": [{"name": "TEAM", "value": "a"}]}),
        pod({"env": [{"name": VISIBLE["name"], "value": "void"}]}),
        pod({"env": [{"name": VISIBLE["name"], "value": "none"}]}),
        pod({**SHARE, "envFrom": [{"configMapRef": {"name": "c"}}]}),
        pod({**SHARE, **prefixed("APP_")}),
        pod({**SHARE, **prefixed("")}),
        pod(prefixed("CUDA_MPS_")),
        pod({**NO_SHARE, "env": [{"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/tmp/own"}]}),
    ],
)
def test_other_variables_pass(policy: Policy, item: Object) -> None:
    """Those of the program, and those that hide every GPU, as arena writes them."""
    assert made(policy, item) == ""


def test_only_kubelets_create_mirror_pods_with_a_share(policy: Policy) -> None:
    """No kubelet starts that of a tenant, which would keep GPU memory from others."""
    mirror = {"name": "p", "annotations": {names.MIRROR_POD: "x"}}
    assert "only the kubelet of a node" in made(policy, pod(SHARE) | {"metadata": mirror})
    assert made(policy, pod({}) | {"metadata": mirror}) == ""
    kubelet = request("system:node:n1", verb="CREATE")
    assert policy.refuses(kubelet, None, pod(SHARE) | {"metadata": mirror}) == ""


def test_a_debug_container_chooses_no_gpu_either(policy: Policy) -> None:
    """An ephemeral container is checked; what the pod had before is not judged again."""
    admission_request = request(TENANT, resource="pods")
    before = pod({**SHARE, "env": [VISIBLE]})
    harmless = pod({**SHARE, "env": [VISIBLE]}, ephemeralContainers=[{"name": "d"}])
    assert policy.refuses(admission_request, before, harmless) == ""
    toolkit = {"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "81920"}
    for item in (VISIBLE, {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/x"}, toolkit):
        debug = pod(SHARE, ephemeralContainers=[{"name": "d", "env": [item]}])
        assert item["name"] in policy.refuses(admission_request, pod(SHARE), debug)


def test_an_earlier_debug_container_keeps_no_later_one_out(policy: Policy) -> None:
    """It cannot be removed; it may be older than the policy, or of an exempt user."""
    admission_request = request(TENANT, resource="pods")
    earlier = {"name": "a", "env": [VISIBLE]}
    before = pod(SHARE, ephemeralContainers=[earlier])
    later = pod(SHARE, ephemeralContainers=[{"name": "b"}, earlier])
    assert policy.refuses(admission_request, before, later) == ""
    later = pod(SHARE, ephemeralContainers=[earlier, {"name": "b", "env": [VISIBLE]}])
    assert VISIBLE["name"] in policy.refuses(admission_request, before, later)


def test_software_that_manages_gpus_is_exempt() -> None:
    """The namespaces of the cluster's own software, and those that the operator adds."""
    values: Object = {"admissionPolicy": {"exemptNamespaces": ["gpu-tools"]}}
    rendered = render("1.33.0", values)
    assert exempt(rendered) == ["kube-system", NAMESPACE, "gpu-tools"]
    assert "gpu-operator" in exempt(render("1.33.0"))


def exempt(rendered: Rendered) -> list[str]:
    """Namespaces that the policy leaves out."""
    spec = rendered.one("ValidatingAdmissionPolicy", "-environment")["spec"]
    (expression,) = spec["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert expression["operator"] == "NotIn"
    found: list[str] = expression["values"]
    return found


def test_the_policy_covers_ephemeral_containers() -> None:
    """They are added through a subresource of their own."""
    rules = render("1.33.0").one("ValidatingAdmissionPolicy", "-environment")["spec"]
    admission_request = [
        (rule["resources"], rule["operations"])
        for rule in rules["matchConstraints"]["resourceRules"]
    ]
    assert admission_request == [(["pods"], ["CREATE"]), (["pods/ephemeralcontainers"], ["UPDATE"])]


def test_the_policy_knows_every_limiting_variable(policy: Policy) -> None:
    """The list of the policy is that of the contract."""
    spec = render("1.33.0").one("ValidatingAdmissionPolicy", "-environment")["spec"]
    text = next(each["expression"] for each in spec["variables"] if each["name"] == "limits")
    assert {each.strip(" '") for each in text.strip("[]").split(",")} == names.LIMITING_ENV
