"""No pod is nominated where kube-scheduler does not evaluate the nominated node first."""

import json

import pytest

from gpuextender.nomination.rounds import evaluates_nominated_first
from gpukube.errors import UnreachableError
from gpukube.testing.scripted import Reply, ScriptedClient


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (json.dumps({"major": "1", "minor": "21"}).encode(), False),
        (json.dumps({"major": "1", "minor": "21+", "gitVersion": "v1.21.5-eks"}).encode(), False),
        (json.dumps({"major": "1", "minor": "22"}).encode(), True),
        (json.dumps({"major": "1", "minor": "37+"}).encode(), True),
        (json.dumps({"major": "2", "minor": "0"}).encode(), True),
        (b"{}", True),
        (b"no version", True),
        (UnreachableError("no answer"), True),
    ],
)
async def test_the_version_decides(reply: Reply, expected: bool) -> None:
    """A version that cannot be read counts as new: the chart has read it as well."""
    assert await evaluates_nominated_first(ScriptedClient(reply)) is expected
