"""The webhook gives a new pod the size of its workload only where its owner opted in."""

import base64
import json
import sys

import msgspec
import pytest
from msgspec.structs import replace
from objects import Object, node, pod
from sizingside import MEM, OPT_IN, SizingSide, history, replica

from gpucore.claims.convert import ClaimRequests
from gpucore.units import GIB
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.namespaces import CountedResources
from gpucore.wire.node.spec import decode_node
from gpucore.wire.pod.spec import decode_pod
from gpucore.wire.whole_requests import pod_request_of
from gpuextender import metrics

ORIGINAL, ORIGINAL_LIMIT = "gpushare/original-memory", "gpushare/original-memory-limit"
LIMIT = "gpushare/memory-limit"


def test_nothing_is_applied_without_opt_in() -> None:
    """Enabled, with a history that recommends less, and no annotation."""
    side = SizingSide(history(2, 3))
    assert side.patches(replica()) == []
    assert side.patches(replica(annotations={"team": "a"})) == []


def test_nothing_is_applied_where_it_is_not_enabled() -> None:
    """Annotations alone do nothing."""
    side = SizingSide(history(2, 3), namespace=OPT_IN, enabled=False)
    assert side.patches(replica(annotations=OPT_IN)) == []


def test_no_depth_of_managed_fields_ends_the_review() -> None:
    """A pod is resized whatever the depth of its managedFields is, also near the stack's end."""
    side = SizingSide(history(2, 3), namespace=OPT_IN)
    for levels in range(800, sys.getrecursionlimit() + 50):
        item = replica()
        fields = msgspec.Raw(b'{"a":' * levels + b"1" + b"}" * levels)
        item["metadata"]["managedFields"] = [{"fieldsV1": fields}]
        request = {"uid": "r1", "namespace": "team", "operation": "CREATE", "object": item}
        response = side.hook.review(msgspec.json.encode({"request": request}))["response"]
        assert "gpu-mem" in str(operations(response))


def resized_pods() -> float:
    """How many pods the webhook gave another size so far."""
    return (
        metrics.REGISTRY.get_sample_value(
            "gpushare_extender_admissions_total", {"result": "resized"}
        )
        or 0.0
    )


def test_a_namespace_opts_in() -> None:
    """The pod gets the peak and the margin, its old size as an annotation, and its scheduler."""
    side, before = SizingSide(history(2, 3), namespace=OPT_IN), resized_pods()
    response = side.answer(replica())
    assert resized_pods() == before + 1
    paths = [each["path"] for each in operations(response)]
    assert paths == [
        "/spec/containers/0/resources/limits/aliyun.com~1gpu-mem",
        "/spec/containers/0/resources/requests/aliyun.com~1gpu-mem",
        "/metadata/annotations",
        "/spec/schedulerName",
    ]
    assert side.size(replica()) == 4
    assert side.created(replica())["metadata"]["annotations"] == {ORIGINAL: "8"}


def operations(response: Object) -> list[Object]:
    """The JSON patch of a response."""
    found: list[Object] = json.loads(base64.b64decode(response["patch"]))
    return found


def test_a_pod_opts_in_and_keeps_its_other_annotations() -> None:
    """The annotation of the pod template is enough."""
    side = SizingSide(history(2, 3))
    found = side.created(replica(annotations={**OPT_IN, "team": "a"}))
    assert found["metadata"]["annotations"] == {**OPT_IN, "team": "a", ORIGINAL: "8"}


@pytest.mark.parametrize(
    "annotations",
    [
        {"gpushare/sizing": "off"},
        {"gpushare/sizing": "recommend"},
        {"gpushare/sizing-exact": "true"},
        {"gpushare/sizing-max": "2"},
    ],
)
def test_a_pod_keeps_its_size_in_a_namespace_that_opts_in(annotations: dict[str, str]) -> None:
    """Opted out, exact, or bounded below what it needs."""
    side = SizingSide(history(2, 3), namespace=OPT_IN)
    assert side.patches(replica(annotations=annotations)) == []


def test_requests_that_the_object_lacks_are_set_too() -> None:
    """Of an extended resource they must be equal to the limits."""
    item = replica(annotations=OPT_IN)
    del item["spec"]["containers"][0]["resources"]["requests"]
    assert SizingSide(history(2, 3)).size(item) == 4


def test_request_and_burst_limit_change_together() -> None:
    """The scheduler's filter counts the new request, and the driver enforces the new limit."""
    side = SizingSide(history(*[3] * 40, 6, requested=8, limit=12), namespace=OPT_IN)
    found = side.created(replica(8, annotations={LIMIT: "12"}))
    assert found["metadata"]["annotations"] == {LIMIT: "7", ORIGINAL: "8", ORIGINAL_LIMIT: "12"}
    request = pod_request_of(decode_pod(json.dumps(found).encode()), DEFAULT_NAMES)
    assert request is not None
    assert (request.mem, request.burst, request.fault) == (4, 7, "")


def test_an_original_size_that_a_tenant_wrote_is_replaced() -> None:
    """What is recorded is what the pod requested."""
    side = SizingSide(history(2, 3), namespace=OPT_IN)
    forged = {ORIGINAL: "4000", ORIGINAL_LIMIT: "9000"}
    assert side.created(replica(annotations=forged))["metadata"]["annotations"] == {ORIGINAL: "8"}


@pytest.mark.parametrize(
    "bound",
    [{"gpushare/sizing-min": "-3"}, {"gpushare/sizing-max": "9" * 30}, {"gpushare/sizing": "x"}],
)
def test_an_annotation_that_is_no_choice_is_named_to_the_author(bound: dict[str, str]) -> None:
    """The pod is created as it is."""
    side = SizingSide(history(2, 3), namespace=OPT_IN)
    assert side.patches(replica(annotations=bound)) == []
    (warning,) = side.answer(replica(annotations=bound))["warnings"]
    assert warning.startswith(f"annotation {next(iter(bound))} is ")
    assert warning.endswith("; the pod keeps its size")


def test_without_fresh_histories_the_pod_keeps_its_size() -> None:
    """After three intervals without a read; a read makes them fresh again."""
    side = SizingSide(history(2, 3), namespace=OPT_IN)
    side.now = 900.0
    assert side.size(replica()) == 4
    side.now = 901.0
    assert side.patches(replica()) == []


def test_while_a_plugin_is_missing_no_pod_is_shrunk() -> None:
    """Its node may have the peak."""
    assert SizingSide(history(2, 3), namespace=OPT_IN, whole=False).patches(replica()) == []


def test_before_the_namespaces_are_known_nothing_is_applied() -> None:
    """Neither where the pod opts in: a limit of the namespace may refuse the new size."""
    side = SizingSide(history(2, 3), listed=False)
    assert side.patches(replica(annotations=OPT_IN)) == []


def test_under_a_quota_a_pod_is_shrunk_and_never_raised() -> None:
    """A raise takes what other pods of the namespace may need."""
    generous = {**OPT_IN, "gpushare/sizing-max": "14"}
    side = SizingSide(history(2, 10), namespace=generous)
    assert side.size(replica()) == 12
    side.listed({"team": generous}, quotas=["team"])
    assert side.patches(replica()) == []
    shrunk = SizingSide(history(2, 3), namespace=generous)
    shrunk.listed({"team": generous}, quotas=["team"])
    assert shrunk.size(replica()) == 4


def test_a_quota_of_another_namespace_or_one_that_is_gone_does_not_count() -> None:
    """Only what the API server would check."""
    generous = {**OPT_IN, "gpushare/sizing-max": "14"}
    side = SizingSide(history(2, 10), namespace=generous)
    side.listed({"team": generous}, quotas=["other"])
    assert side.size(replica()) == 12
    quota = CountedResources("team", "q", frozenset({MEM}))
    _, (_, quotas), _ = side.rules.followed()
    quotas.on_update(quota, b"")
    assert side.patches(replica()) == []
    quotas.on_update(replace(quota, resources=frozenset({"pods"})), b"")
    assert side.size(replica()) == 12
    quotas.on_update(quota, b"")
    quotas.on_delete(quota)
    assert side.size(replica()) == 12


def test_a_limit_range_of_gpu_memory_leaves_pods_as_they_are() -> None:
    """It could refuse a smaller or a larger size than the owner's."""
    side = SizingSide(history(2, 3), namespace=OPT_IN)
    side.listed({"team": OPT_IN}, limits=["team"])
    assert side.patches(replica()) == []


def test_nodes_that_count_in_different_units_apply_nothing() -> None:
    """A unit of the pod is then not certain."""
    side = SizingSide(history(2, 3), namespace=OPT_IN)
    assert side.size(replica()) == 4
    side.state.node_changed(decode_node(json.dumps(node("m", 16384, unit="MiB")).encode()))
    assert side.patches(replica()) == []


@pytest.mark.parametrize(
    "item",
    [
        replica(8, 2),
        replica(16),
        replica(labels={"gpu-topology": "g", "gpu-topology-replica": "2"}),
        replica(owner="other"),
        replica(9),
        pod("web", 8),
    ],
    ids=["containers", "whole GPU", "gang", "unknown", "changed", "no controller"],
)
def test_other_pods_keep_their_size(item: Object) -> None:
    """Their history is not that of one share of this size."""
    assert SizingSide(history(2, 3), namespace=OPT_IN).patches(item) == []


def test_a_faked_owner_reaches_no_workload_of_another_namespace() -> None:
    """Whatever reference a pod has, histories of its own namespace alone count."""
    side = SizingSide(history(2, 3))
    assert side.size(replica(annotations=OPT_IN)) == 4
    assert side.patches(replica(annotations=OPT_IN), namespace="other") == []


def test_the_namespace_of_the_request_counts() -> None:
    """The object may name another, which the API server refuses later."""
    side = SizingSide(history(2, 3))
    item = replica(annotations=OPT_IN, namespace="team")
    assert side.patches(item, namespace="other") == []


def test_a_pod_that_is_refused_gets_no_patch() -> None:
    """The refusal is the answer."""
    item = replica(annotations=OPT_IN)
    item["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    request = {"uid": "r1", "namespace": "team", "object": item}
    body = json.dumps({"request": request}).encode()
    response = SizingSide(history(2, 3)).hook.review(body)["response"]
    assert (response["allowed"], "patch" in response) == (False, False)


def test_pods_of_kube_system_keep_their_size() -> None:
    """They pass untouched."""
    side = SizingSide(history(2, 3, namespace="kube-system"))
    side.listed({"kube-system": OPT_IN})
    assert side.patches(replica(annotations=OPT_IN), namespace="kube-system") == []


def test_a_namespace_that_becomes_a_claims_namespace_is_not_resized() -> None:
    """Its pods are converted as their owners wrote them."""
    side = SizingSide(history(2, 3), namespace=OPT_IN)
    how = ClaimRequests(DEFAULT_NAMES, GIB)
    request = {"uid": "r1", "namespace": "team", "object": replica()}
    response = side.hook.review(json.dumps({"request": request}).encode(), how)["response"]
    assert ORIGINAL not in json.dumps(operations(response))
    assert any("resourceClaims" in each["path"] for each in operations(response))
