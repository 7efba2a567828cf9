"""Capacities that claims request: any text that a claim has is an amount."""

import json
from typing import Any

import pytest

from gpucore.units import MIB_BYTES
from gpucore.wire.claim.claim_specs import DeviceChoice, decode_claim_spec, decode_template
from gpucore.wire.quantity import MOST


def choices(memory: Any) -> list[DeviceChoice]:
    """What a claim and a template with this amount of memory request."""
    exactly = {"deviceClassName": "c", "capacity": {"requests": {"memory": memory}}}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    claim = json.dumps({"metadata": {"name": "x"}, "spec": spec}).encode()
    template = json.dumps({"metadata": {"name": "x"}, "spec": {"spec": spec}}).encode()
    specs = decode_claim_spec(claim)[2], decode_template(template)[2]
    return [each.requests[0].choices[0] for each in specs]


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ("8Gi", 8 << 10),
        (8 << 30, 8 << 10),
        ("-1Gi", 0),
        ("-1", 0),
        ("much", MOST // MIB_BYTES),
        ("1e999", MOST // MIB_BYTES),
        (None, MOST // MIB_BYTES),
        ({"a": 1}, MOST // MIB_BYTES),
    ],
)
def test_every_capacity_is_an_amount(memory: Any, expected: int) -> None:
    """A negative one is the smallest, and text that is no quantity is more than a device has."""
    assert [choice.memory_mib for choice in choices(memory)] == [expected, expected]
