"""The policies that keep users and stolen tokens from writing who holds which card."""

import helm_python as helm
import pytest
from admission import Policy
from charting import NAMESPACE, Object, Rendered, render

from gpucore.wire import names
from gpucore.wire.names import INVENTORY_HASH

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
    assert condition["expression"].endswith(f":{pod['serviceAccountName']}'")


def test_older_cluster_is_told_so() -> None:
    """Where the cluster has no such policies the install stops with the version that has."""
    with pytest.raises(helm.HelmError, match=r"needs Kubernetes 1\.30"):
        render("1.29.9", ENABLED)


def request(user: str, *, node: str = "", resource: str = "pods", verb: str = "UPDATE") -> Object:
    """Who asks for what."""
    extra = {"authentication.kubernetes.io/node-name": [node]} if node else {}
    info = {"username": user, "extra": extra}
    return {"operation": verb, "resource": {"resource": resource}, "userInfo": info}


def pod(node: str = "n1", image: str = "a", **annotations: str) -> Object:
    """A pod with annotations."""
    spec = {"nodeName": node, "containers": [{"name": "c", "image": image}]}
    return {"metadata": {"name": "p", "annotations": annotations}, "spec": spec}


def labelled(item: Object, key: str, value: str = "1") -> Object:
    """The object with this label."""
    return item | {"metadata": item["metadata"] | {"labels": {key: value}}}


TENANT = "jane"
SELF = f"system:serviceaccount:{NAMESPACE}:gpushare-device-plugin"
IDX = {"ALIYUN_COM_GPU_MEM_IDX": "1"}


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
    """A new pod has no card, so that it cannot pass for one that has."""
    asked = request(TENANT, verb="CREATE")
    answer = Policy(rendered, "-allocation").refuses(asked, None, pod(**annotations))
    assert bool(answer) is refused


def test_the_plugin_may_correct_and_is_asked_by_its_own_policy(rendered: Rendered) -> None:
    """What is forbidden to tenants is the plugin's work, on its own node."""
    asked = request(SELF, node="n1")
    for policy in ("-allocation", "-device-plugin"):
        assert Policy(rendered, policy).refuses(asked, pod(), pod(**IDX)) == ""


@pytest.mark.parametrize(
    ("node", "after", "sentence"),
    [
        ("n2", pod(**IDX), "its own node"),
        ("n1", pod(image="evil"), "changes annotations"),
        ("", pod(image="evil"), "changes annotations"),
        ("n1", labelled(pod(), INVENTORY_HASH), "changes annotations"),
        ("n1", pod(team="a"), "of its allocation alone"),
    ],
    ids=["another node", "an image", "an image, older cluster", "a label", "another annotation"],
)
def test_a_stolen_plugin_token_runs_nothing_elsewhere(
    rendered: Rendered, node: str, after: Object, sentence: str
) -> None:
    """Pods of other nodes, images, and annotations of others are out of its reach."""
    answer = Policy(rendered, "-device-plugin").refuses(request(SELF, node=node), pod(), after)
    assert sentence in answer


def test_the_plugin_publishes_its_own_node_alone(rendered: Rendered) -> None:
    """The inventory and the number of cards, but neither taints, labels nor another node."""
    policy = Policy(rendered, "-device-plugin")
    before = {"metadata": {"name": "n1"}, "spec": {}}
    after = {"metadata": {"name": "n1", "annotations": {"gpushare/inventory": "{}"}}, "spec": {}}
    told = labelled(after, INVENTORY_HASH)
    wrong = labelled(after, "gpushare")
    tainted = {**after, "spec": {"taints": [{"key": "x"}]}}
    asked = request(SELF, node="n1", resource="nodes")
    for old, new in [(before, after), (before, told), (told, labelled(told, INVENTORY_HASH, "2"))]:
        assert policy.refuses(asked, old, new) == ""
    for old, new in [(before, tainted), (before, wrong), (wrong, after), (told, wrong)]:
        assert "changes annotations" in policy.refuses(asked, old, new)
    other = request(SELF, node="n2", resource="nodes")
    assert "its own node" in policy.refuses(other, before, after)


def test_the_plugins_policy_is_nobody_elses(rendered: Rendered) -> None:
    """Others are not held to what the plugin is."""
    answer = Policy(rendered, "-device-plugin").refuses(request(TENANT), pod(), pod(image="b"))
    assert answer == ""
