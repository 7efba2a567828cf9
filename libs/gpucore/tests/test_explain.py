"""Sentences for people, and the catalogue they come from."""

from pathlib import Path

import pytest

from gpucore.accounting.node_info import NodeInfo
from gpucore.explain.catalogue import catalogue_page
from gpucore.explain.groups import figures, grouped
from gpucore.explain.sentences import headline, placement_sentence, sentence
from gpucore.model import Code, DeviceFitError, FitError, Placement
from gpucore.steps import complete
from gpucore.units import GIB, GpuIndex, MemoryUnit, NodeName

N = NodeName("n")
LEGACY = "Insufficient GPU Memory in one device"


def make_gpu(
    code: Code, free: int = 0, total: int = 0, requested: int = 0, index: int = 0
) -> DeviceFitError:
    """Why one GPU cannot."""
    return DeviceFitError(GpuIndex(index), code, free, total, requested)


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (
            FitError(
                N,
                Code.INSUFFICIENT_MEMORY,
                (
                    make_gpu(Code.INSUFFICIENT_MEMORY, 6, 15, 8),
                    make_gpu(Code.INSUFFICIENT_MEMORY, 7, 15, 8, index=1),
                ),
                GIB,
                8,
                total=1,
            ),
            f"{LEGACY}: no GPU has 8 GiB free: GPU 0 has 6 of 15 free, GPU 1 has 7 of 15 free",
        ),
        (
            FitError(
                N,
                Code.INSUFFICIENT_MEMORY,
                (make_gpu(Code.UNHEALTHY), make_gpu(Code.INSUFFICIENT_MEMORY, 1, 9, 5, index=2)),
                MemoryUnit(256),
                5,
                free=1,
                total=2,
            ),
            (f"{LEGACY}: 1 of 2 GPUs has 5 units of 256MiB free: GPU 0 is unhealthy, "
            "GPU 2 has 1 of 9 free"),
        ),
        (
            FitError(
                N,
                Code.INSUFFICIENT_CORE,
                (make_gpu(Code.INSUFFICIENT_CORE, 30, 100, 40),),
                None,
                2,
                total=1,
            ),
            ("No GPU with enough free memory has enough free compute: no GPU can take 2 units: "
            "GPU 0 has 30 of 100 percent of compute free, requested 40"),
        ),
        (
            FitError(
                N, Code.TOO_LARGE, (make_gpu(Code.TOO_LARGE, 15, 15, 20_000),), GIB, 20_000, total=1
            ),
            f"{LEGACY}: no GPU can take 20000 GiB: GPU 0 has 15 in total",
        ),
        (
            FitError(
                N, Code.TOO_LARGE, (make_gpu(Code.TOO_LARGE, 15, 15, 8_000),), GIB, 8_000, total=1
            ),
            (f"{LEGACY}: no GPU can take 8000 GiB: GPU 0 has 15 in total; "
            "if you meant MiB, request 8"),
        ),
        (
            FitError(N, Code.MAX_PODS, (make_gpu(Code.MAX_PODS, 0, 48, 1),), GIB, 1, total=1),
            ("The GPU has reached its maximum number of pods: no GPU can take 1 GiB: "
            "GPU 0 has its maximum of 48 pods"),
        ),
        (
            FitError(
                N,
                Code.ISOLATION_MODE_MISSING,
                (make_gpu(Code.ISOLATION_MODE_MISSING, 9, 9, 1),),
                GIB,
                1,
                total=1,
            ),
            ("The GPU does not have the isolation mode that the pod demands: "
            "no GPU can take 1 GiB: GPU 0 does not have the demanded isolation mode"),
        ),
        (
            FitError(N, Code.PENDING_UNITS, (), GIB, 8, free=7, total=6),
            (f"{LEGACY}: requested 8 GiB, 7 free on the node after 6 are kept for pods "
            "on unknown GPUs"),
        ),
        (
            FitError(N, Code.PENDING_COMPUTE, (), GIB, 50, free=40, total=60),
            ("Pods on the node have compute on unknown GPUs, so the free compute is uncertain: "
            "requested 50 percent, 40 free on the node after 60 are kept for pods on unknown GPUs"),
        ),
        (
            FitError(
                N,
                Code.INSUFFICIENT_GPUS,
                (make_gpu(Code.SHARED_GPU), make_gpu(Code.TAKEN_WHOLE, index=1)),
                GIB,
                2,
                total=2,
            ),
            ("The node has too few GPUs that are entirely free: requested 2, 0 of 2 GPUs are free: "
            "GPU 0 is shared, GPU 1 is used exclusively"),
        ),
        (
            FitError(N, Code.INSUFFICIENT_GPUS, (), GIB, 3, free=2, total=2),
            "The node has too few GPUs that are entirely free: requested 3, 2 of 2 GPUs are free",
        ),
        (
            FitError(N, Code.UNEVEN_SPLIT, (), GIB, 7, total=2),
            ("The amount does not divide evenly over the requested number of GPUs: "
            "7 GiB over 2 GPUs"),
        ),
        (
            FitError(N, Code.INVALID_REQUEST, detail="its label is wrong"),
            "The pod's request is invalid: its label is wrong",
        ),
        (FitError(N, Code.NOT_SHARED), "The node n is not for GPU share, need skip"),
        (FitError(N, Code.NODE_UNKNOWN), "The extender has not received a node with this name"),
    ],
)  # fmt: skip
def test_a_refusal_is_a_sentence_with_figures(refusal: FitError, words: str) -> None:
    """The original's text first where it had one, then what is missing on which GPU."""
    assert sentence(refusal) == words


@pytest.mark.parametrize("code", list(Code))
def test_headlines_can_be_counted(code: Code) -> None:
    """Two nodes with other figures have the same headline, unless the node is the reason."""
    one = FitError(N, code, (make_gpu(Code.UNHEALTHY),), GIB, 1, 2, 3, detail="d")
    two = FitError(N, code, (), None, 4, 5, 6, detail="d")
    assert headline(one) == headline(two)
    assert sentence(one).startswith(headline(one))


@pytest.mark.parametrize(
    ("placement", "words"),
    [
        (Placement(N, {GpuIndex(1): 8}), "8 GiB on GPU 1 of node n"),
        (
            Placement(N, {GpuIndex(2): 4, GpuIndex(0): 4}, {GpuIndex(0): 20, GpuIndex(2): 20}),
            (
                "4 GiB on GPU 0, 4 GiB on GPU 2 and 20 percent of compute on GPU 0, "
                "20 percent of compute on GPU 2 of node n"
            ),
        ),
        (Placement(N, group=(GpuIndex(3),)), "GPU 3 of node n, exclusive"),
        (Placement(N, group=(GpuIndex(3), GpuIndex(0))), "GPUs 3, 0 of node n, exclusive"),
        (Placement(N), "an unknown GPU of node n"),
    ],
)
def test_a_placement_is_a_sentence(placement: Placement, words: str) -> None:
    """Where a pod sits, in the unit of the node."""
    assert placement_sentence(placement, GIB) == words


def test_pending_compute_has_figures_in_percent() -> None:
    """Of the node, since nobody knows on which GPU the compute is."""
    refusal = FitError(N, Code.PENDING_COMPUTE, (), GIB, 50, free=40, total=60)
    (group,) = complete(grouped({N: refusal}, {N: NodeInfo(N)}))
    assert figures(group) == "free on the node 40 percent, requested 50"


def test_figures_of_a_share_of_several_gpus_count_those_that_fit() -> None:
    """A GPU that fits has more free than the largest block of the others; its node is nearest."""
    short = [DeviceFitError(GpuIndex(i), Code.INSUFFICIENT_MEMORY, 6 + i, 20, 8) for i in (0, 1)]
    one = FitError(N, Code.INSUFFICIENT_MEMORY, (short[0],), GIB, 8, free=1, total=2)
    none = FitError(NodeName("m"), Code.INSUFFICIENT_MEMORY, tuple(short), GIB, 8, total=2)
    infos = {each.node: NodeInfo(each.node) for each in (one, none)}
    (group,) = complete(grouped({each.node: each for each in (one, none)}, infos))
    rest = "largest free block 6 GiB, requested 8"
    assert figures(group) == f"1 of 2 GPUs fits; of the others: {rest}"
    assert group.example.endswith("1 of 2 GPUs has 8 GiB free: GPU 0 has 6 of 20 free")
    (group,) = complete(grouped({none.node: none}, infos))
    assert figures(group) == "largest free block 7 GiB, requested 8"


def test_every_code_has_a_sentence_and_a_remedy() -> None:
    """Both end as sentences do, and fit a cell of a table."""
    for code in Code:
        assert code == code.value
        assert code.sentence.endswith(".")
        assert code.remedy.endswith(".")
        assert "|" not in code.sentence + code.remedy


def test_the_documentation_is_the_catalogue() -> None:
    """docs/reason-codes.md is what the code prints; print it again when this fails."""
    page = Path(__file__).parents[3] / "docs" / "reason-codes.md"
    assert page.read_text(encoding="utf-8") == catalogue_page()
