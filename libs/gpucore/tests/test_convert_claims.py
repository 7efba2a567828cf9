"""Pods of the device plugin as pods with claims, and the templates that they use."""

import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.claims.convert import ClaimRequests, Conversion, convert
from gpucore.claims.selectors import select, unknown_terms
from gpucore.claims.share_template import (
    ShareRequest,
    ShareTemplate,
    Tolerance,
    decode_contents,
    encode_contents,
    template_name,
    template_object,
)
from gpucore.model import IsolationMode
from gpucore.model.constraints import NO_EXECUTE, Taint
from gpucore.units import GIB
from gpucore.wire.claim.claim_specs import decode_template
from gpucore.wire.claim.devices import MIG, UNHEALTHY, SliceDevice
from gpucore.wire.errors import WireError
from gpucore.wire.names import (
    CLAIM_TEMPLATE,
    DEFAULT_NAMES,
    KAI_CONTAINER,
    KAI_MEMORY_LIMIT,
    LABEL_REQUIRE_WHOLE,
    MEMORY_LIMIT,
    REQUIRE_WHOLE_DEVICE,
)

HOW = ClaimRequests(DEFAULT_NAMES, GIB)
KAI_LIMIT = f"{KAI_CONTAINER}c0{KAI_MEMORY_LIMIT}"
ALONE = {LABEL_REQUIRE_WHOLE: REQUIRE_WHOLE_DEVICE}
MEM, CORE, GPU = DEFAULT_NAMES.gpu_mem, DEFAULT_NAMES.gpu_core, DEFAULT_NAMES.gpu
Object = dict[str, Any]


def pod(*limits: dict[str, str], inits: tuple[dict[str, str], ...] = (), **fields: Any) -> Object:
    """A pod with a container for each of the limits."""
    boxes = [
        {"name": f"c{i}", "resources": {"limits": dict(each)}} for i, each in enumerate(limits)
    ]
    before = [
        {"name": f"i{i}", "resources": {"limits": dict(each)}} for i, each in enumerate(inits)
    ]
    spec = {"containers": boxes, **({"initContainers": before} if before else {})}
    return {"metadata": {"name": "p", "namespace": "ns", **fields}, "spec": spec}


def converted(item: Object) -> Conversion:
    """The conversion of a pod."""
    return convert(msgspec.json.encode(item), HOW)


def test_no_depth_of_managed_fields_hides_the_pod() -> None:
    """A pod is converted whatever the depth of its managedFields is, also near the stack's end."""
    for levels in range(800, sys.getrecursionlimit() + 50):
        fields = msgspec.Raw(b'{"a":' * levels + b"1" + b"}" * levels)
        item = pod({MEM: "4"}, managedFields=[{"fieldsV1": fields}])
        assert converted(item).template is not None


@pytest.mark.parametrize("text", ["0.5", "1500m", "1.5"])
@pytest.mark.parametrize("kind", ["limits", "requests"])
def test_a_fraction_is_not_converted(kind: str, text: str) -> None:
    """The API server rejects such a pod; rounded up, its claim would be larger than requested."""
    item = pod({MEM: "2"})
    item["spec"]["containers"][0]["resources"].setdefault(kind, {})[MEM] = text
    found = converted(item)
    assert found.template is None
    assert f"{MEM}: {text} is no whole number" in found.obstacle
    assert converted(pod({MEM: "2000m"})).template is not None


def test_a_fraction_of_an_init_container_is_not_converted() -> None:
    """The API server looks at these containers too."""
    found = converted(pod({MEM: "2"}, inits=({MEM: "0.5"},)))
    assert found.template is None
    assert f"{MEM}: 0.5 is no whole number" in found.obstacle


def test_the_first_container_has_the_largest_amounts_of_init_containers() -> None:
    """Memory and compute each, because they use its share before it starts."""
    found = converted(pod({MEM: "4", CORE: "10"}, inits=({MEM: "2", CORE: "30"},))).template
    assert found is not None
    assert found.requests == (ShareRequest(4 * 1024, 30),)


def test_a_sidecar_enlarges_no_share_but_its_own() -> None:
    """Only init containers that end before use the share of the first container."""
    item = pod({MEM: "4"}, inits=({MEM: "8"},))
    item["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    found = converted(item).template
    assert found is not None
    assert found.requests == (ShareRequest(4 * 1024), ShareRequest(8 * 1024))


def patched(item: Object, found: Conversion) -> Object:
    """The pod with the changes, by the rules of JSON patch that are used here."""
    body: Object = msgspec.json.decode(msgspec.json.encode(item))
    for change in found.changes:
        *way, last = [part.replace("~1", "/") for part in change["path"].split("/")[1:]]
        at: Any = body
        for part in way:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if change["op"] == "remove":
            del at[last]
        elif last == "-":
            at.append(change["value"])
        else:
            at[last] = change["value"]
    return body


def test_a_share_becomes_a_claim_of_the_same_size() -> None:
    """7 units of GiB and 10 percent; the resource goes, so that no device plugin is needed."""
    item = pod({MEM: "7", CORE: "10", "cpu": "1"})
    item["spec"]["containers"][0]["resources"]["requests"] = {MEM: "7", CORE: "10", "cpu": "1"}
    found = converted(item)
    assert found.template == ShareTemplate((ShareRequest(7 * 1024, 10),))
    body = patched(item, found)
    resources = body["spec"]["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"] == {"cpu": "1"}
    assert resources["claims"] == [{"name": "gpushare", "request": "gpu-0"}]
    name = template_name(found.template, "gpushare")
    assert body["spec"]["resourceClaims"] == [
        {"name": "gpushare", "resourceClaimTemplateName": name}
    ]
    assert decode_contents(body["metadata"]["annotations"][CLAIM_TEMPLATE]) == found.template


def test_the_template_requests_what_the_pod_did() -> None:
    """As kube-scheduler reads it."""
    found = converted(pod({MEM: "7", CORE: "10"}))
    assert found.template is not None
    item = template_object(found.template, "ns", "gpushare")
    exactly = item["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert exactly == {
        "deviceClassName": "gpushare",
        "capacity": {"requests": {"memory": "7168Mi", "compute": "10"}},
    }
    choice = decode_template(msgspec.json.encode(item))[2].requests[0].choices[0]
    assert (choice.memory_mib, choice.core, choice.count) == (7168, 10, 1)


def test_containers_of_one_pod_share_one_gpu() -> None:
    """Each has its own part, on the same GPU."""
    found = converted(pod({MEM: "2"}, {}, {MEM: "3"}))
    assert found.template is not None
    devices = template_object(found.template, "ns", "gpushare")["spec"]["spec"]["devices"]
    assert [each["name"] for each in devices["requests"]] == ["gpu-0", "gpu-1"]
    assert devices["constraints"] == [{"matchAttribute": "gpu.gpushare.io/uuid"}]
    boxes = patched(pod({MEM: "2"}, {}, {MEM: "3"}), found)["spec"]["containers"]
    assert [box["resources"].get("claims") for box in boxes] == [
        [{"name": "gpushare", "request": "gpu-0"}],
        None,
        [{"name": "gpushare", "request": "gpu-1"}],
    ]


def test_an_init_container_uses_the_first_share() -> None:
    """It is as large as the larger of the two."""
    item = pod({MEM: "2"}, inits=({MEM: "5"},))
    found = converted(item)
    assert found.template == ShareTemplate((ShareRequest(5 * 1024),))
    box = patched(item, found)["spec"]["initContainers"][0]
    assert box["resources"]["claims"] == [{"name": "gpushare", "request": "gpu-0"}]


def test_an_init_container_uses_the_largest_share() -> None:
    """The claim is as large as what the extender reserves: an init container ends before."""
    item = pod({MEM: "1"}, {MEM: "14"}, inits=({MEM: "4"},))
    found = converted(item)
    assert found.template is not None
    assert [each.memory_mib for each in found.template.requests] == [1024, 14 * 1024]
    box = patched(item, found)["spec"]["initContainers"][0]
    assert box["resources"]["claims"] == [{"name": "gpushare", "request": "gpu-1"}]


@pytest.mark.parametrize("core", ["0", "20"])
def test_an_init_container_never_uses_the_share_of_a_sidecar_beside_it(core: str) -> None:
    """Both run at the same time, and each would be given all of one share."""
    item = pod({"cpu": "1"}, inits=({MEM: "4", CORE: core}, {MEM: "4"}))
    item["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    found = converted(item)
    assert found.template is None
    assert "share of a sidecar" in found.obstacle
    item["spec"]["containers"][0]["resources"]["limits"] = {MEM: "2"}
    assert converted(item).template is not None


def test_a_pod_that_is_alone_on_its_gpu_claims_all_of_it() -> None:
    """The label ack.gpushare.placement: a claim without an amount of memory leaves none."""
    assert converted(pod({MEM: "2"}, labels=ALONE)).template == ShareTemplate((ShareRequest(),))
    beside = converted(pod({MEM: "2"}, {"cpu": "1"}, labels=ALONE))
    assert beside.template == ShareTemplate((ShareRequest(),))


def test_a_share_over_several_gpus_needs_distinct_gpus() -> None:
    """The label gpu-count; each GPU has its part."""
    found = converted(pod({MEM: "8", CORE: "20"}, labels={DEFAULT_NAMES.gpu_count: "2"}))
    modes = (IsolationMode.NONE, IsolationMode.DRIVER)
    assert found.template == ShareTemplate((ShareRequest(4 * 1024, 10),), count=2, modes=modes)
    devices = template_object(found.template, "ns", "gpushare")["spec"]["spec"]["devices"]
    assert devices["requests"][0]["exactly"]["count"] == 2
    assert devices["constraints"] == [{"distinctAttribute": "gpu.gpushare.io/uuid"}]


def selectors(item: Object) -> list[str]:
    """CEL expressions of the first request of the converted pod's template."""
    found = converted(item)
    assert found.template is not None, found.obstacle
    devices = template_object(found.template, "ns", "gpushare")["spec"]["spec"]["devices"]
    exactly = devices["requests"][0]["exactly"]
    return [each["cel"]["expression"] for each in exactly.get("selectors", ())]


@pytest.mark.parametrize("demanded", list(IsolationMode))
def test_an_isolation_mode_selects_the_gpus_that_the_extender_would_take(
    demanded: IsolationMode,
) -> None:
    """A GPU of mode driver+mps serves a pod that demands mps or driver."""
    item = pod({MEM: "1"}, annotations={"gpushare/isolation": demanded.value, "other": "x"})
    expressions = selectors(item)
    assert unknown_terms(expressions) == ()
    for mode in IsolationMode:
        device = SliceDevice("gpu-0", isolation=mode.value)
        assert select(device, expressions).matches is mode.gives(demanded)


def test_the_selector_of_an_isolation_mode_is_written_for_one_value_and_for_several() -> None:
    """Both forms are CEL of kube-scheduler; a pod without a mode has no selector."""
    attribute = 'device.attributes["gpu.gpushare.io"].isolation'
    strongest = pod({MEM: "1"}, annotations={"gpushare/isolation": "driver-mps"})
    assert selectors(strongest) == [f'{attribute} == "driver+mps"']
    weaker = pod({MEM: "1"}, annotations={"gpushare/isolation": "mps"})
    assert selectors(weaker) == [f'{attribute} in ["mps", "driver+mps"]']
    assert selectors(pod({MEM: "1"})) == []


def tolerating(*tolerations: Object) -> Object:
    """A pod with these tolerations."""
    item = pod({MEM: "1"})
    item["spec"]["tolerations"] = list(tolerations)
    return item


@pytest.mark.parametrize(
    ("tolerations", "effects"),
    [
        ([], []),
        ([{"operator": "Exists"}], []),
        ([{"key": "nvidia.com/gpu", "operator": "Exists"}], []),
        ([{"key": UNHEALTHY, "operator": "Equal", "value": "false"}], []),
        ([{"key": UNHEALTHY, "operator": "Exists", "effect": "PreferNoSchedule"}], []),
        ([{"key": UNHEALTHY, "operator": "Exists"}], ["NoExecute", "NoSchedule"]),
        ([{"key": UNHEALTHY, "value": "true", "effect": "NoSchedule"}], ["NoSchedule"]),
    ],
)
def test_a_toleration_of_an_unhealthy_gpu_is_one_of_the_claim(
    tolerations: list[Object], effects: list[str]
) -> None:
    """Only one that names the taint: a pod that tolerates every node wants no broken GPU."""
    found = converted(tolerating(*tolerations)).template
    assert found is not None
    raw = msgspec.json.encode(template_object(found, "ns", "gpushare"))
    (choice,) = decode_template(raw)[2].requests[0].choices
    for effect in ("NoSchedule", "NoExecute"):
        taint = Taint(UNHEALTHY, "true", effect)
        tolerated = any(each.tolerates(taint) for each in choice.tolerations)
        assert tolerated is (effect in effects)


def test_the_shortest_time_on_an_unhealthy_gpu_counts() -> None:
    """As for the taints of nodes; a negative time is 0, and one toleration may set none."""
    stays = {"key": UNHEALTHY, "operator": "Exists", "effect": "NoExecute"}
    times = [stays | {"tolerationSeconds": seconds} for seconds in (300, 60)]
    found = converted(tolerating(stays, *times)).template
    assert found == ShareTemplate((ShareRequest(1024),), tolerations=(Tolerance(NO_EXECUTE, 60),))
    exactly = template_object(found, "", "gpushare")["spec"]["spec"]["devices"]["requests"][0]
    assert exactly["exactly"]["tolerations"] == [stays | {"tolerationSeconds": 60}]
    found = converted(tolerating(stays | {"tolerationSeconds": -1})).template
    assert found is not None
    assert found.tolerations == (Tolerance(NO_EXECUTE, 0),)


def test_tolerations_that_are_none_are_an_obstacle() -> None:
    """No text of a pod is an error of the webhook."""
    item = pod({MEM: "1"}) | {"kind": "Pod"}
    for odd in (5, [5], [{"key": 5}], [{"key": UNHEALTHY, "tolerationSeconds": "x"}]):
        item["spec"]["tolerations"] = odd
        assert converted(item).obstacle


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (pod({MEM: "1"}, labels={"gpu-topology": "g", "gpu-topology-replica": "2"}), "gang"),
        (pod({CORE: "10"}), "compute alone"),
        (pod({MEM: "3"}, labels={DEFAULT_NAMES.gpu_count: "2"}), "evenly over 2 GPUs"),
        (pod({MEM: "2"}, {MEM: "2"}, labels={DEFAULT_NAMES.gpu_count: "2"}), "one container"),
        (
            pod(
                {MEM: "8"},
                labels={DEFAULT_NAMES.gpu_count: "2"},
                annotations={"gpushare/isolation": "mps"},
            ),
            "several GPUs have no isolation mode with MPS",
        ),
        (pod({MEM: "1", GPU: "1"}), "both exclusive GPUs and shares"),
        (pod({}, inits=({MEM: "1"},)), "only init containers"),
        (pod({MEM: "99999999999"}), "more than 16777215 MiB"),
        (pod({MEM: "2"}, {MEM: "2"}, labels=ALONE), "a GPU of its own needs one container"),
        (pod({MEM: "2"}, annotations={MEMORY_LIMIT: "4"}), "memory beyond the share"),
        (pod({MEM: "2"}, annotations={KAI_LIMIT: "2049"}), "memory beyond the share"),
    ],
)
def test_what_is_not_converted_has_a_reason(item: Object, words: str) -> None:
    """The pod stays as it is."""
    found = converted(item)
    assert (found.template, found.changes) == (None, ())
    assert words in found.obstacle


@pytest.mark.parametrize(
    "item",
    [
        pod({MEM: "2"}, annotations={MEMORY_LIMIT: "2"}),
        pod({MEM: "2"}, annotations={KAI_LIMIT: "2048"}),
        pod({MEM: "2"}, annotations={KAI_LIMIT.replace("c0", "other"): "4096"}),
        pod({MEM: "2"}, annotations={MEMORY_LIMIT: "4"}, labels=ALONE),
    ],
)
def test_a_memory_limit_that_gives_no_more_than_the_claim_is_no_obstacle(item: Object) -> None:
    """It equals the share, is of another container, or the pod has all of its GPU."""
    assert converted(item).template is not None


def test_other_pods_are_left_alone() -> None:
    """No GPU, or exclusive GPUs, which kube-scheduler maps to claims itself."""
    assert converted(pod({"cpu": "1"})) == Conversion()
    assert converted(pod({GPU: "2"})) == Conversion()


@pytest.mark.parametrize("demanded", [IsolationMode.NONE, IsolationMode.DRIVER])
def test_several_gpus_are_those_that_one_program_can_use_together(demanded: IsolationMode) -> None:
    """A program connects to one MPS daemon, and CUDA shows a process one MIG instance."""
    expressions = selectors(
        pod(
            {MEM: "8"},
            labels={DEFAULT_NAMES.gpu_count: "2"},
            annotations={"gpushare/isolation": demanded.value},
        )
    )
    for mode in (*(each.value for each in IsolationMode), MIG):
        wanted = mode in {"none", "driver"} and (mode == "driver" or not demanded.uses_driver)
        assert select(SliceDevice("g", isolation=mode), expressions).matches is wanted


def test_one_gpu_may_be_in_any_mode() -> None:
    """The DeviceClass decides about MIG instances."""
    assert selectors(pod({MEM: "8"}, labels={DEFAULT_NAMES.gpu_count: "1"})) == []


def test_a_claim_of_the_pods_own_stays() -> None:
    """Ours is added behind it."""
    item = pod({MEM: "1"})
    item["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimName": "n"}]
    item["spec"]["containers"][0]["resources"]["claims"] = [{"name": "nic"}]
    body = patched(item, converted(item))
    assert [each["name"] for each in body["spec"]["resourceClaims"]] == ["nic", "gpushare"]
    claims = body["spec"]["containers"][0]["resources"]["claims"]
    assert [each["name"] for each in claims] == ["nic", "gpushare"]


def test_a_claim_of_our_name_is_refused() -> None:
    """Two claims of one name are no pod."""
    item = pod({MEM: "1"})
    item["spec"]["resourceClaims"] = [{"name": "gpushare", "resourceClaimName": "n"}]
    assert "claim of the name gpushare" in converted(item).obstacle


@given(st.integers(0, (1 << 24) - 1), st.integers(0, 100), st.integers(1, 32))
def test_names_are_bounded_and_follow_from_the_contents(mem: int, core: int, count: int) -> None:
    """Equal contents have one template, others another; the annotation reads back."""
    contents = ShareTemplate((ShareRequest(mem, core),), count)
    name = template_name(contents, "gpushare")
    assert len(name) == 25
    assert decode_contents(encode_contents(contents)) == contents
    assert name != template_name(contents, "other")
    other = msgspec.structs.replace(contents, modes=(IsolationMode.MPS,))
    assert name != template_name(other, "gpushare")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"requests":[]}',
        '{"requests":[{"memoryMiB":-1}]}',
        '{"requests":[{"memoryMiB":99999999999}]}',
        '{"requests":[{"compute":101}]}',
        '{"requests":[{}],"count":33}',
        '{"requests":[{},{}],"count":2}',
        '{"requests":[{}],"modes":["mps\\"] || true"]}',
        '{"requests":[{}],"modes":["none","mps","driver","driver+mps","none"]}',
        '{"requests":[{}],"tolerations":[{"effect":"PreferNoSchedule"}]}',
        '{"requests":[{}],"tolerations":[{"effect":"NoExecute","key":""}]}',
        '{"requests":[{}],"tolerations":[{"effect":"NoExecute","seconds":-1}]}',
        '{"requests":[{}],"deviceClass":"admin"}',
        '{"requests":[{}],"namespace":"other"}',
        '{"requests":[{"deviceClassName":"admin"}]}',
        '{"requests":[' + ",".join(["{}"] * 17) + "]}",
        '{"requests":' + "[" * 5000,
    ],
)
def test_a_hostile_annotation_is_refused(text: str) -> None:
    """It chooses amounts within limits, and neither class, selector nor namespace."""
    with pytest.raises(WireError, match="gpushare/claim-template"):
        decode_contents(text)
