"""The annotation with results of ``gpushare verify``."""

from gpucore.model import Gpu
from gpucore.units import GpuIndex, GpuUuid
from gpucore.wire.verified import (
    MOST_BYTES,
    VerifiedNode,
    by_index,
    decode_verified,
    encode_verified,
)

FOUND = VerifiedNode(at=1_800_000_000, gpus={"GPU-a": {"memory": "pass", "share": "fail"}})


def test_results_are_read_as_they_were_written() -> None:
    """Verdicts by GPU and row, and the time of the run."""
    assert decode_verified(encode_verified(FOUND)) == FOUND


def test_what_cannot_be_read_is_no_result() -> None:
    """Anybody who may annotate the pod can write anything."""
    for text in ("", "[]", "{", '{"at": "x", "gpus": {}}', " " * (MOST_BYTES + 1)):
        assert decode_verified(text) is None
    rows = '{"0": {"memory": "%s"}}'
    for at in (-1, 2**38, 10**15, 10**30):
        assert decode_verified(f'{{"at": {at}, "gpus": {rows % "pass"}}}') is None
    for verdict in ("passed", "", "pass\\n"):
        assert decode_verified(f'{{"at": 1, "gpus": {rows % verdict}}}') is None
    assert decode_verified(f'{{"at": 1, "gpus": {{"0": {{"{"r" * 64}": "pass"}}}}}}') is None
    assert decode_verified("[" * 10_000) is None
    many = VerifiedNode(at=1, gpus={str(n): {} for n in range(65)})
    assert decode_verified(encode_verified(many)) is None


def test_results_are_of_a_gpu_and_not_of_its_index() -> None:
    """Those of a GPU that the node has not are left out; older versions wrote the index."""
    node = VerifiedNode(1, {"GPU-b": {"share": "fail"}, "GPU-c": {}, "7": {"share": "pass"}})
    gpus = [Gpu(GpuIndex(i), GpuUuid(u), 15) for i, u in enumerate(("GPU-a", "GPU-b"))]
    assert by_index(node, gpus) == {"1": {"share": "fail"}, "7": {"share": "pass"}}
