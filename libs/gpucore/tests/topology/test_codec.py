"""Matrices as files, as the annotation of 2019, and as a drawing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucore.accounting.node_infos import node_matrix
from gpucore.model import Gpu, Inventory
from gpucore.model.links import TopologyError
from gpucore.testing.machines import MACHINES, PHB, V100_GUIDE
from gpucore.topology.drawing import draw
from gpucore.units import GpuIndex, GpuUuid
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.node.matrices import (
    decode_annotation,
    decode_matrix,
    encode_annotation,
    matrix_of,
)
from gpucore.wire.node.spec import decode_node

PHB_DRAWN = """\
      GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7
GPU0     X  PHB  PHB  PHB  PHB  PHB  PHB  PHB
GPU1   PHB    X  PHB  PHB  PHB  PHB  PHB  PHB
GPU2   PHB  PHB    X  PHB  PHB  PHB  PHB  PHB
GPU3   PHB  PHB  PHB    X  PHB  PHB  PHB  PHB
GPU4   PHB  PHB  PHB  PHB    X  PHB  PHB  PHB
GPU5   PHB  PHB  PHB  PHB  PHB    X  PHB  PHB
GPU6   PHB  PHB  PHB  PHB  PHB  PHB    X  PHB
GPU7   PHB  PHB  PHB  PHB  PHB  PHB  PHB    X
"""

GUIDE_DRAWN = """\
      GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7
GPU0     X  NV1  NV1  NV2  SYS  SYS  NV2  SYS
GPU1   NV1    X  NV2  NV1  SYS  SYS  SYS  NV2
GPU2   NV1  NV2    X  NV2  NV1  SYS  SYS  SYS
GPU3   NV2  NV1  NV2    X  SYS  NV1  SYS  SYS
GPU4   SYS  SYS  NV1  SYS    X  NV2  NV1  NV2
GPU5   SYS  SYS  SYS  NV1  NV2    X  NV2  NV1
GPU6   NV2  SYS  SYS  SYS  NV1  NV2    X  NV1
GPU7   SYS  NV2  SYS  SYS  NV2  NV1  NV1    X
"""


def test_the_user_guide_annotation_round_trips() -> None:
    """The annotation of the 2019 guide becomes a symmetric matrix and its own text again."""
    text = encode_annotation(V100_GUIDE.matrix)
    entries = json.loads(text)
    matrix = decode_annotation(text)
    assert (entries["GPU_NV1_0_1"], entries["GPU_NV2_0_3"]) == ("Single NVLink", "Two NVLinks")
    assert (entries["GPU_SYS_0_4"], len(entries)) == ("Cross CPU socket", 28)
    assert matrix == V100_GUIDE.matrix
    assert matrix.scores == tuple(zip(*matrix.scores, strict=True))
    assert encode_annotation(matrix) == text


def test_the_user_guide_machine_is_drawn_as_documented() -> None:
    """The drawing of the V100 machine has NVLinks where the reference lists them."""
    assert draw(decode_annotation(encode_annotation(V100_GUIDE.matrix))) == GUIDE_DRAWN


def test_the_sample_node_is_drawn_as_documented() -> None:
    """Eight GPUs behind one host bridge give the table of the documentation."""
    assert draw(decode_annotation(encode_annotation(PHB.matrix))) == PHB_DRAWN


def test_used_gpus_are_drawn_as_x() -> None:
    """Rows and columns of GPUs in use show X, as the original shows them."""
    drawn = draw(PHB.matrix, used={1}).splitlines()
    assert drawn[1] == "GPU0     X    X  PHB  PHB  PHB  PHB  PHB  PHB"
    assert drawn[2] == "GPU1     X    X    X    X    X    X    X    X"


def test_two_digit_gpus_stay_in_their_columns() -> None:
    """With more than ten GPUs every column is as wide as its heading."""
    lines = draw(MACHINES["dgx2"].matrix).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[11].startswith("GPU10  NV6")


@pytest.mark.parametrize("name", MACHINES)
def test_files_round_trip(name: str) -> None:
    """Every known machine described in a file is read as it is."""
    matrix = MACHINES[name].matrix
    links = {f"{a}-{b}": names for (a, b), names in matrix.links.items()}
    assert decode_matrix(json.dumps({"gpus": len(matrix.gpus), "links": links})) == matrix


def test_a_file_may_say_numa_nodes() -> None:
    """NUMA nodes are read, and those of GPUs there are not are left out."""
    matrix = decode_matrix('{"gpus": 2, "links": {"0-1": ["PIX"]}, "numa": [0, 1, 1]}')
    assert matrix.numas == (0, 1)


def test_either_form_of_file_is_understood() -> None:
    """A file with the annotation's object reads as the annotation does."""
    text = encode_annotation(V100_GUIDE.matrix)
    assert decode_matrix(text) == decode_annotation(text)


def test_pairs_that_are_not_named_have_no_link() -> None:
    """A missing pair scores nothing and is written as N-A in the annotation."""
    matrix = decode_matrix('{"gpus": 3, "links": {"0-1": ["PIX"]}}')
    assert (matrix.score(0, 1), matrix.score(0, 2)) == (50, 0)
    assert json.loads(encode_annotation(matrix))["GPU_N-A_0_2"] == "N/A"


def test_the_description_explains_what_the_abbreviation_cannot() -> None:
    """The 2019 writer abbreviated five NVLinks as N-A; the description still has five."""
    assert decode_annotation('{"GPU_N-A_0_1": "Five NVLinks"}').between(0, 1) == ("NV5",)
    assert decode_annotation('{"GPU_N-A_0_1": "N/A"}').between(0, 1) == ()


def test_more_than_six_nvlinks_have_a_number() -> None:
    """Newer machines than the format keep their count."""
    for count in (18, 36):
        document = f'{{"gpus": 2, "links": {{"0-1": ["NV{count}", "SYS"]}}}}'
        text = encode_annotation(decode_matrix(document))
        assert text == f'{{"GPU_NV{count}_0_1":"{count} NVLinks"}}'
        assert decode_annotation(text).between(0, 1) == (f"NV{count}",)


def test_odd_entries_cost_no_others() -> None:
    """Keys of another form, far too large indexes and unknown links become notes."""
    matrix = decode_annotation(
        '{"GPU_PIX_0_1": "Single PCI switch", "GPU_PIX_0": "", "GPU_PIX_0_1_2": "",'
        ' "GPU_PIX_0_999": "", "GPU_WARP_1_2": "", "note": ""}'
    )
    assert (matrix.gpus, matrix.score(0, 1)) == ((0, 1, 2), 50)
    assert len(matrix.notes) == 5


def test_gpus_without_entries_are_counted_where_their_number_is_known() -> None:
    """A node of four GPUs has four even if its annotation names two."""
    assert decode_annotation('{"GPU_PIX_0_1": ""}', gpu_count=4).gpus == (0, 1, 2, 3)


BAD_FILES = {
    "no JSON": "GPU0 X NV1",
    "a list": "[]",
    "no GPUs": '{"links": {}}',
    "zero GPUs": '{"gpus": 0}',
    "too many GPUs": '{"gpus": 65}',
    "GPUs that are no number": '{"gpus": "8"}',
    "links of another form": '{"gpus": 2, "links": {"0-1": "PIX"}}',
    "an annotation of numbers": '{"GPU_PIX_0_1": 1}',
    "nothing": "",
    "bytes of no text": b"\xff\xfe{",
    "deep nesting": "[" * 100_000,
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_that_are_none(name: str) -> None:
    """What is no matrix ends in the module's one error."""
    with pytest.raises(TopologyError):
        decode_matrix(BAD_FILES[name])


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_input_gives_a_matrix_or_the_one_error(raw: bytes | str) -> None:
    """Nothing but TopologyError ever leaves either reader."""
    for read in (decode_matrix, decode_annotation):
        try:
            matrix = read(raw)
        except TopologyError:
            continue
        assert matrix.scores == tuple(zip(*matrix.scores, strict=True))


keys = st.from_regex(r"(GPU_)?(NV[0-9]|PIX|SYS|N-A)?_?[0-9]{0,3}[-_][0-9]{0,3}", fullmatch=True)


@pytest.mark.slow
@given(st.dictionaries(keys, st.sampled_from(["", "N/A", "Two NVLinks", "Same board"])))
def test_any_annotation_gives_a_symmetric_matrix(entries: dict[str, str]) -> None:
    """Any object of texts is a matrix, with a note for each entry that is not understood."""
    matrix = decode_annotation(json.dumps(entries))
    assert matrix.scores == tuple(zip(*matrix.scores, strict=True))
    assert len(matrix.links) + len(matrix.notes) <= 2 * len(entries)


def node(annotations: dict[str, str], gpus: int = 2) -> bytes:
    """A node object with exclusive GPUs."""
    capacity = {"aliyun.com/gpu": str(gpus)} if gpus else {}
    metadata = {"name": "n", "annotations": annotations}
    return json.dumps({"metadata": metadata, "status": {"capacity": capacity}}).encode()


INVENTORY = json.dumps(
    {
        "version": 1,
        "unit": "GiB",
        "gpus": [{"index": 0, "units": 16}, {"index": 1, "units": 16}],
        "links": {"0-1": ["NV2", "PIX"]},
    }
)


def test_the_links_in_our_inventory_come_first() -> None:
    """The inventory has both links of a pair and goes before the 2019 annotation."""
    annotations = {"gpushare/inventory": INVENTORY, "GPU_TOPOLOGY": '{"GPU_SYS_0_1": ""}'}
    matrix = node_matrix(decode_node(node(annotations)), DEFAULT_NAMES)
    assert matrix is not None
    assert matrix.between(0, 1) == ("NV2", "PIX")


def test_a_node_of_2019_has_its_links_in_an_annotation() -> None:
    """Without our inventory the GPUs are those of the capacity, the links those annotated."""
    matrix = node_matrix(decode_node(node({"GPU_TOPOLOGY": '{"GPU_NV1_0_1": ""}'})), DEFAULT_NAMES)
    assert matrix is not None
    assert (matrix.gpus, matrix.between(0, 1)) == ((0, 1), ("NV1",))


def test_a_node_without_links_or_gpus() -> None:
    """GPUs without links have an empty matrix, an unreadable annotation a note, no GPUs none."""
    plain = node_matrix(decode_node(node({})), DEFAULT_NAMES)
    broken = node_matrix(decode_node(node({"GPU_TOPOLOGY": "{"})), DEFAULT_NAMES)
    assert plain is not None
    assert (plain.gpus, plain.links, plain.notes) == ((0, 1), {}, ())
    assert broken is not None
    assert len(broken.notes) == 1
    assert node_matrix(decode_node(node({}, gpus=0)), DEFAULT_NAMES) is None


def test_an_inventory_is_written_as_the_2019_plugin_would() -> None:
    """One entry a pair, NVLinks before the PCIe path, in the original's words."""
    links = {"0-1": ("PHB", "NV2"), "0-2": ("SYS",), "1-2": ("NODE", "NV18")}
    gpus = tuple(Gpu(GpuIndex(i), GpuUuid(f"GPU-{i}"), 16) for i in range(3))
    text = encode_annotation(matrix_of(Inventory(gpus=gpus, links=links)))
    assert json.loads(text) == {
        "GPU_NV2_0_1": "Two NVLinks",
        "GPU_SYS_0_2": "Cross CPU socket",
        "GPU_NV18_1_2": "18 NVLinks",
    }
