"""Who reads the published mix computes the numbers of the extender that uses it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.wire.errors import WireError
from gpucore.workload.arrivals import HISTORY_KEY as HISTORY
from gpucore.workload.mix_in_use import (
    KEY,
    MOST_AMOUNT,
    MOST_BYTES,
    MixInUse,
    decode_mix,
    encode_mix,
)
from gpucore.workload.pod_mix import MOST_KINDS, PodKind, PodMix

NOW = 1_800_000_000.25
MODELS = ("A100-SXM4-80GB", "Tesla T4")


def kinds() -> st.SearchStrategy[PodKind]:
    """Kinds of pods, for any or some GPU models."""
    return st.builds(
        PodKind,
        st.integers(1, 8),
        st.integers(0, 80),
        st.integers(0, 100),
        st.integers(0, 64_000),
        st.integers(0, 2**18),
        st.lists(st.sampled_from(MODELS), unique=True).map(lambda found: tuple(sorted(found))),
    )


def mixes() -> st.SearchStrategy[PodMix]:
    """Mixes with weights of any precision."""
    weights = st.floats(1e-9, 20_000.0)
    return st.dictionaries(kinds(), weights, min_size=1, max_size=MOST_KINDS).map(PodMix)


@pytest.mark.slow
@given(mixes(), st.integers(0, 64_000), st.integers(0, 2**18))
def test_the_mix_that_is_read_is_the_one_that_was_published(
    mix: PodMix, cpu: int, memory: int
) -> None:
    """Its weights to the last bit and in their order, so every placement is rated alike."""
    found = decode_mix(encode_mix(mix, NOW))
    assert found.time == NOW
    again = found.mix()
    assert again is not None
    assert list(again.kinds.items()) == list(mix.kinds.items())
    free = (0, 250, 500, 1000)
    rated = [each.view("Tesla T4", 16, cpu, memory).fragmentation(free) for each in (mix, again)]
    assert rated[0] == rated[1]


def test_the_guess_is_published_as_a_mix_without_kinds() -> None:
    """So a reader does not learn one where the extender has not."""
    assert decode_mix(encode_mix(None, NOW)).mix() is None


def test_the_document_does_not_replace_the_history() -> None:
    """Both are in one ConfigMap."""
    assert KEY != HISTORY


def test_amounts_beyond_all_nodes_are_published_as_the_largest() -> None:
    """A pod may request 10**22 CPUs; kinds that become equal keep their weight."""
    huge = [PodKind(cpu_milli=10**25), PodKind(cpu_milli=10**24), PodKind(mem=4)]
    found = decode_mix(encode_mix(PodMix(dict.fromkeys(huge, 1.5)), NOW)).mix()
    assert found is not None
    assert found.kinds == {PodKind(cpu_milli=MOST_AMOUNT): 3.0, PodKind(mem=4): 1.5}


def test_the_document_of_the_largest_mix_of_a_usual_cluster_is_small() -> None:
    """With as many kinds as a mix has, each for eight models of GPUs."""
    models = tuple(f"NVIDIA A100-SXM4-80GB-{number}" for number in range(8))
    mix = {PodKind(8, 80, 100, 64_000 + n, 2**18, models): 123.456789012345 for n in range(128)}
    assert len(encode_mix(PodMix(mix), NOW)) < MOST_BYTES / 2


def test_a_document_that_would_be_too_large_is_refused() -> None:
    """Inventories name the models, and a node may publish a long name."""
    mix = PodMix({PodKind(mem=n, models=("x" * 1000,)): 1.0 for n in range(1, 129)})
    with pytest.raises(WireError, match=f"bytes, the most is {MOST_BYTES}"):
        encode_mix(mix, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"time": 1, "kinds": []}',
        '{"time": 1, "kinds": [], "version": 2}',
        '{"time": -1, "kinds": [], "version": 1}',
        '{"time": 1, "kinds": [{"weight": -1}], "version": 1}',
        '{"time": 1, "kinds": [{"weight": 1, "mem": -1}], "version": 1}',
        '{"time": 1, "kinds": [{"weight": 1, "mem": 9007199254740993}], "version": 1}',
        '{"time": 1, "kinds": [{"weight": 1e300}], "version": 1}',
        '{"time": 1, "version": 1, "kinds": [' + ",".join(['{"weight": 1}'] * 129) + "]}",
        "[" * 90_000,
        '{"time": 1, "kinds": [], "version": 1}' + " " * MOST_BYTES,
    ],
)
def test_foreign_and_broken_documents_are_refused(text: str) -> None:
    """Nothing beyond the ranges is taken over, and the error is short."""
    with pytest.raises(WireError) as caught:
        decode_mix(text)
    assert len(str(caught.value)) < 300


def test_fields_of_later_versions_are_passed_over() -> None:
    """A reader of today reads what a later extender adds."""
    text = '{"time": 1, "kinds": [{"weight": 1, "new": 2}], "version": 1, "more": 3}'
    assert decode_mix(text) == MixInUse(1.0, decode_mix(text).kinds, 1)
    assert msgspec.json.encode(decode_mix(text).kinds) == b'[{"weight":1.0}]'
