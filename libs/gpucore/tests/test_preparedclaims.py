"""ResourceClaims as their driver reads them: only its own devices, and nothing that is hostile."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.wire.claim.devices import UNHEALTHY
from gpucore.wire.claim.prepared import (
    RESULTS_LIMIT,
    AllocatedClaim,
    decode_allocation,
    valid_uid,
)
from gpucore.wire.claim.resource_claims import DeviceShare
from gpucore.wire.errors import WireError
from gpucore.wire.names import CLAIM_DRIVER


def result(**changes: Any) -> dict[str, Any]:
    """7Gi of the first GPU, as the scheduler writes it."""
    return {
        "request": "gpu",
        "driver": CLAIM_DRIVER,
        "pool": "n1",
        "device": "gpu-0",
        "shareID": "share-1",
        "consumedCapacity": {"memory": "7Gi", "compute": "10"},
        **changes,
    }


def claim(*results: dict[str, Any], **devices: Any) -> bytes:
    """An allocated claim."""
    status = {"allocation": {"devices": {"results": list(results), **devices}}}
    return json.dumps({"metadata": {"uid": "u-1"}, "status": status}).encode()


def test_the_devices_of_the_driver_are_read_in_order_and_others_are_left_out() -> None:
    """A claim may have devices of several drivers; each prepares its own."""
    raw = claim(result(), result(driver="nic.example.com", device="eth0"), result(device="gpu-1"))
    first = DeviceShare("gpu", CLAIM_DRIVER, "n1", "gpu-0", "share-1", memory=7 << 30, core=10)
    second = DeviceShare("gpu", CLAIM_DRIVER, "n1", "gpu-1", "share-1", memory=7 << 30, core=10)
    assert decode_allocation(raw, CLAIM_DRIVER) == AllocatedClaim("u-1", (first, second))


def test_a_device_without_consumed_capacity_is_allocated_as_a_whole() -> None:
    """Without the feature gate a device has no shares, and the claim no capacity."""
    raw = claim(result(shareID=None, consumedCapacity=None))
    assert decode_allocation(raw, CLAIM_DRIVER).devices == (
        DeviceShare("gpu", CLAIM_DRIVER, "n1", "gpu-0"),
    )


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"key": UNHEALTHY, "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": UNHEALTHY, "operator": "Equal", "value": "true", "effect": "NoExecute"}, True),
        ({"operator": "Exists"}, True),
        ({"key": UNHEALTHY, "operator": "Equal", "value": "false"}, False),
        ({"key": "gpu.example.com/other", "operator": "Exists"}, False),
        ({"key": UNHEALTHY, "operator": "Exists", "effect": "PreferNoSchedule"}, False),
    ],
)
def test_the_tolerations_of_an_allocation_tell_whether_the_gpu_may_be_unhealthy(
    toleration: dict[str, str], *, tolerates: bool
) -> None:
    """The API server copies those of the request into the status."""
    raw = claim(result(tolerations=[toleration]), result())
    shares = decode_allocation(raw, CLAIM_DRIVER).devices
    assert [each.tolerates_unhealthy for each in shares] == [tolerates, False]


def test_a_subrequest_is_named_by_its_request() -> None:
    """Kubelet looks devices up by the name that containers use, which is that of the request."""
    raw = claim(result(request="gpu/small"))
    assert decode_allocation(raw, CLAIM_DRIVER).devices[0].request == "gpu"


def test_capacities_with_a_domain_are_read_too() -> None:
    """The API permits both spellings of a driver's own capacity."""
    raw = claim(result(consumedCapacity={"gpu.gpushare.io/memory": "512Mi"}))
    device = decode_allocation(raw, CLAIM_DRIVER).devices[0]
    assert (device.memory, device.core) == (512 << 20, 0)


@pytest.mark.parametrize(
    ("driver", "configured"), [(CLAIM_DRIVER, True), ("nic.example.com", False)]
)
def test_opaque_parameters_are_noticed_but_never_decoded(driver: str, *, configured: bool) -> None:
    """Parameters of another driver are no concern of this one, whatever they contain."""
    opaque = {"driver": driver, "parameters": {"a": [1, {"b": "x" * 100_000}]}}
    raw = claim(result(), config=[{"source": "FromClaim", "opaque": opaque}])
    assert decode_allocation(raw, CLAIM_DRIVER).configured is configured


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        b'{"metadata": {"uid": "u-1"}}',
        claim(result(request="../../etc/passwd")),
        claim(result(request="a" * 64)),
        claim(result(device="gpu-0\n")),
        claim(result(shareID="x" * 200)),
        claim(result(consumedCapacity={"memory": "much"})),
        claim(result(consumedCapacity={"memory": "-1Gi"})),
        claim(*[result()] * (RESULTS_LIMIT + 1)),
    ],
    ids=range(11),
)
def test_anything_else_is_refused(raw: bytes) -> None:
    """The one error of this boundary, whatever is put in."""
    with pytest.raises(WireError):
        decode_allocation(raw, CLAIM_DRIVER)


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda c: (
            st.lists(c)
            | st.dictionaries(
                st.sampled_from(["metadata", "status", "allocation", "devices", "results", "uid"]),
                c,
            )
        ),
    )
)
def test_no_document_raises_another_error(document: Any) -> None:
    """Property: documents of any shape are decoded or refused."""
    try:
        decode_allocation(json.dumps(document).encode(), CLAIM_DRIVER)
    except WireError:
        return


@pytest.mark.parametrize("text", ["", "..", "a/b", "a.b", "-a", "a-", "a" * 65, "a\n", "ä"])
def test_a_uid_that_could_leave_the_directory_is_not_valid(text: str) -> None:
    """UIDs become parts of file names."""
    assert not valid_uid(text)
    assert valid_uid("0f1e6f0a-55b2-4f0f-9c88-9f2f6a6f0e11")
