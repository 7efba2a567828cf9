"""The policy that keeps users from writing who holds which card."""

import helm_python as helm
import pytest
from charting import Object, render

from gpucore.wire import names

ENABLED: Object = {"admissionPolicy": {"enabled": True}}


def variables(values: Object) -> dict[str, str]:
    """Expressions of the policy by name."""
    (policy,) = render("1.30.0", values).of("ValidatingAdmissionPolicy")
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
    (policy,) = rendered.of("ValidatingAdmissionPolicy")
    (condition,) = policy["spec"]["matchConditions"]
    pod = dict(rendered.pods())["device-plugin"]
    assert condition["expression"].endswith(f":{pod['serviceAccountName']}'")


def test_older_cluster_is_told_so() -> None:
    """Where the cluster has no such policies the install stops with the version that has."""
    with pytest.raises(helm.HelmError, match=r"needs Kubernetes 1\.30"):
        render("1.29.9", ENABLED)
