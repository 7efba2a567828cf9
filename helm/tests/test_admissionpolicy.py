"""The policies that keep users and stolen tokens from writing who holds which GPU."""

import helm_python as helm
import pytest
from admission import IDX, SELF, TENANT, Policy, held_by, labelled, pod, request, right
from charting import Object, Rendered, render

from gpucore.node.claims.prepare import CLAIM_KIND
from gpucore.node.isolation.cdi import CDI_KIND
from gpucore.wire import names
from gpucore.wire.names import INVENTORY_HASH

pytestmark = pytest.mark.slow

ENABLED: Object = {"admissionPolicy": {"enabled": True}}


def variables(values: Object) -> dict[str, str]:
    """Expressions of the policy by name."""
    policy = render("1.30.0", values).one("ValidatingAdmissionPolicy", "-allocation")
    return {item["name"]: item["expression"] for item in policy["spec"]["variables"]}


@pytest.mark.parametrize("prefix", ["ALIYUN_COM", "EXAMPLE"])
def test_every_allocation_annotation_is_protected(prefix: str) -> None:
    """The list is that of the contract, under the prefix in force, no more and no less."""
    mine = names.Names(prefix=prefix)
    expected = {
        *(mine.mem_idx, mine.mem_dev, mine.mem_pod, mine.mem_assigned, mine.mem_assume_time),
        *(mine.group, mine.group_assigned, mine.group_assume_time),
        *(names.UNIT, names.EXCLUSIVE, names.GPU_GROUP, names.GPU_VISIBLE),
        *(names.V2_ALLOCATION, names.V2_ASSIGNED, names.V2_ASSUME_TIME),
        *(names.V3_MEMORY, names.V3_CORE_PERCENTAGE, names.V3_ASSIGNED, names.V3_ASSUME_TIME),
    }
    text = variables({**ENABLED, "annotationPrefix": prefix})["protected"]
    found = text.strip("[] \n").split(",")
    assert {item.strip(" '\n") for item in found} == expected


def test_the_plugin_alone_is_exempt() -> None:
    """The plugin corrects annotations to the truth; the scheduler writes them with the Binding."""
    rendered = render("1.30.0", ENABLED)
    policy = rendered.one("ValidatingAdmissionPolicy", "-allocation")
    (condition,) = policy["spec"]["matchConditions"]
    pod = dict(rendered.pods())["device-plugin"]
    assert condition["expression"].endswith(f":{pod['serviceAccountName']}'])")


def test_users_named_in_values_are_exempt_too() -> None:
    """A backup tool may restore pods with their annotations where the operator specifies it."""
    user = "system:serviceaccount:velero:velero"
    values: Object = {"admissionPolicy": {"exemptUsers": [user]}}
    policy = Policy(render("1.33.0", values), "-allocation")
    assert policy.refuses(request(user, verb="CREATE"), None, pod(**IDX)) == ""
    assert policy.refuses(request(TENANT, verb="CREATE"), None, pod(**IDX))


@pytest.mark.parametrize(
    ("version", "values", "installed"),
    [
        ("1.29.9", {}, False),
        ("1.30.0", {}, True),
        ("1.30.4-eks-36c2a22", {}, True),
        ("1.34.0", {"admissionPolicy": {"enabled": False}}, False),
    ],
)
def test_policies_are_installed_by_default_where_the_cluster_has_them(
    version: str, values: Object, *, installed: bool
) -> None:
    """From Kubernetes 1.30 on, unless values switch them off."""
    rendered = render(version, values)
    found = {each["metadata"]["name"] for each in rendered.of("ValidatingAdmissionPolicy")}
    names = ("allocation", "certificates", "device-plugin", "environment", "extender", "quota")
    expected = {f"gpushare-{each}" for each in names}
    assert found == (expected if installed else set())


def test_older_cluster_is_notified() -> None:
    """Where the cluster has no such policies the install stops with the version that has."""
    with pytest.raises(helm.HelmError, match=r"needs Kubernetes 1\.30"):
        render("1.29.9", ENABLED)


@pytest.fixture(scope="module")
def rendered() -> Rendered:
    """The chart with its policies."""
    return render("1.33.0", ENABLED)


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        (pod(**IDX), pod(**{**IDX, "team": "a"}), False),
        (pod(**IDX), pod(ALIYUN_COM_GPU_MEM_IDX="0"), True),
        (pod(**IDX), pod(), True),
        (pod(), pod(**IDX), True),
        ({"metadata": {}}, {"metadata": {}}, False),
    ],
    ids=["others", "changed", "removed", "added", "none"],
)
def test_tenants_change_all_annotations_but_those(
    rendered: Rendered, before: Object, after: Object, *, refused: bool
) -> None:
    """The API server would refuse exactly what touches an allocation."""
    answer = Policy(rendered, "-allocation").refuses(request(TENANT), before, after)
    assert bool(answer) is refused


@pytest.mark.parametrize(("annotations", "refused"), [(IDX, True), ({"team": "a"}, False)])
def test_nobody_is_born_with_an_allocation(
    rendered: Rendered, annotations: dict[str, str], *, refused: bool
) -> None:
    """A new pod has no GPU, so that it cannot pass for one that has."""
    admission_request = request(TENANT, verb="CREATE")
    answer = Policy(rendered, "-allocation").refuses(admission_request, None, pod(**annotations))
    assert bool(answer) is refused


@pytest.mark.parametrize(
    ("devices", "refused"),
    [
        ("nvidia.com/gpu=all", True),
        ("runtime.nvidia.com/gpu=0", True),
        ("vendor.com/nic=0,nvidia.com/gpu=0:1", True),
        ("k8s.gpu.nvidia.com/claim=a", True),
        (f"{CDI_KIND}=gpu-mem-0", True),
        (f"{CLAIM_KIND}=a", True),
        ("vendor.com/nic=0", False),
        ("nvidia.com/pgpu=0", False),
    ],
)
def test_no_annotation_gives_a_pod_a_gpu_past_the_device_plugin(
    rendered: Rendered, devices: str, *, refused: bool
) -> None:
    """CRI-O hands annotations of pods to NVIDIA's runtime, which reads CDI devices from them."""
    policy = Policy(rendered, "-allocation")
    item = pod(**{"cdi.k8s.io/x": devices})
    assert bool(policy.refuses(request(TENANT, verb="CREATE"), None, item)) == refused
    assert bool(policy.refuses(request(TENANT), pod(), item)) == refused
    later = pod(**{"cdi.k8s.io/x": devices, "team": "a"})
    assert policy.refuses(request(TENANT), item, later) == ""
    managing = request(TENANT, verb="CREATE") | {"namespace": "gpu-operator"}
    assert policy.refuses(managing, None, item) == ""


def test_the_plugin_may_correct_and_is_checked_by_its_own_policy(rendered: Rendered) -> None:
    """What is forbidden to tenants is the plugin's work, on its own node."""
    admission_request = request(SELF, node="n1")
    for policy in ("-allocation", "-device-plugin"):
        assert Policy(rendered, policy).refuses(admission_request, pod(), pod(**IDX)) == ""


@pytest.mark.parametrize(
    ("node", "after", "sentence"),
    [
        ("n2", pod(**IDX), "its own node"),
        ("n1", pod(image="evil"), "changes annotations"),
        ("", pod(**IDX), "its own node"),
        ("n1", labelled(pod(), INVENTORY_HASH), "changes annotations"),
        ("n1", pod(team="a"), "only the allocation annotations"),
        ("n1", held_by(pod(), finalizers=["x/y"]), "no finalizers"),
        (
            "n1",
            held_by(pod(), ownerReferences=[{"kind": "ConfigMap", "uid": "0"}]),
            "no finalizers",
        ),
    ],
    ids=["another node", "an image", "no node", "a label", "an annotation", "finalizer", "owner"],
)
def test_a_stolen_plugin_token_runs_nothing_elsewhere(
    rendered: Rendered, node: str, after: Object, sentence: str
) -> None:
    """Pods of other nodes, images, and annotations of others are out of its reach."""
    answer = Policy(rendered, "-device-plugin").refuses(request(SELF, node=node), pod(), after)
    assert sentence in answer


@pytest.mark.parametrize(
    "key", ["ack.gpushare.placement", "aliyun.com/gpu-count"], ids=["exclusive", "gpus"]
)
def test_labels_that_the_scheduler_reads_are_final_at_bind(rendered: Rendered, key: str) -> None:
    """A waiting pod may still change them; they stay as they are on a pod that has a node."""
    policy = Policy(rendered, "-allocation")
    admission_request = request(TENANT)
    requesting = labelled(pod(), key)
    for before, after in [
        (pod(), requesting),
        (requesting, pod()),
        (requesting, labelled(pod(), key, "2")),
    ]:
        assert "when it binds" in policy.refuses(admission_request, before, after)
    assert policy.refuses(admission_request, requesting, labelled(requesting, "team")) != ""
    assert policy.refuses(admission_request, pod(), labelled(pod(), "team")) == ""
    assert policy.refuses(admission_request, pod(node=""), labelled(pod(node=""), key)) == ""
    assert policy.refuses(request(TENANT, verb="CREATE"), None, requesting) == ""


@pytest.mark.parametrize(
    "key", ["gpushare/memory-limit", "nvidia.com/container.main.gpu-memory.limit"]
)
def test_a_memory_limit_is_final_at_bind_without_the_right_to_resize(
    rendered: Rendered, key: str
) -> None:
    """No tenant raises the limit of a pod that runs; the pod's author writes it before."""
    others = [
        right("update", "pods", subresource="resize", namespace="other", name="p"),
        right("get", "pods", subresource="resize", name="p"),
        right("update", "pods", subresource="", name="p"),
    ]
    policy = Policy(rendered, "-allocation", *others)
    admission_request = request(TENANT)
    limited = pod(**{key: "12"})
    for before, after in [(pod(), limited), (limited, pod()), (limited, pod(**{key: "40"}))]:
        assert "who may update pods/resize" in policy.refuses(admission_request, before, after)
    assert policy.refuses(admission_request, limited, pod(**{key: "12", "team": "a"})) == ""
    assert policy.refuses(admission_request, pod(node=""), pod(node="", **{key: "12"})) == ""
    assert policy.refuses(request(TENANT, verb="CREATE"), None, limited) == ""


def test_who_may_resize_a_pod_changes_its_memory_limit(rendered: Rendered) -> None:
    """To a whole number: another text would be ignored by the plugin, and mislead people."""
    policy = Policy(
        rendered, "-allocation", right("update", "pods", subresource="resize", name="p")
    )
    limited = pod(**{"gpushare/memory-limit": "12"})
    for text in ("1", "40"):
        after = pod(**{"gpushare/memory-limit": text})
        assert policy.refuses(request(TENANT), limited, after) == ""
    assert policy.refuses(request(TENANT), limited, pod()) == ""
    for text in ("0", "-1", "8Gi", "", "1e3", "9" * 10):
        after = pod(**{"gpushare/memory-limit": text})
        assert "must be a whole number" in policy.refuses(request(TENANT), limited, after)
    protected = pod(**{"gpushare/memory-limit": "12", **IDX})
    assert "only the gpushare scheduler" in policy.refuses(request(TENANT), limited, protected)


def test_the_plugins_policy_is_nobody_elses(rendered: Rendered) -> None:
    """Others are not held to what the plugin is."""
    answer = Policy(rendered, "-device-plugin").refuses(request(TENANT), pod(), pod(image="b"))
    assert answer == ""
