"""Machine and state files that are wrong: one clear sentence with file and line, never a crash."""

import pytest

from mocknvml import build
from mocknvml.tests.conftest import Start
from mocknvml.tests.nvml_process import NvmlFailure

pytestmark = pytest.mark.slow

GPU = """[gpu 0]
name = Tesla T4
uuid = GPU-84bc6439-fa3f-4477-8cd2-a7a3d5d9f18f
memory_mib = 16130
pci = 00000000:3B:00.0
"""
OTHER = GPU.replace("gpu 0", "gpu 1").replace("84bc", "94bc").replace("3B", "AF")

WRONG = {
    "no section": ("name = T4\n", 1, "stands before the first [section]"),
    "open header": ("[gpu 0\n", 1, "a header ends with ']', got '[gpu 0'"),
    "unknown section": ("# a\n\n[card 0]\n", 3, "'[card 0]' is no section"),
    "section without number": ("[gpu]\n", 1, "'[gpu]' is no section"),
    "gpu too many": ("[gpu 32]\n", 1, "GPUs go from 0 to 31"),
    "no equals": ("[driver]\nversion 535\n", 2, "expects 'key = value', got 'version 535'"),
    "empty value": ("[driver]\nversion =\n", 2, "has an empty value"),
    "unknown key": ("[driver]\ncolour = red\n", 2, "'colour' is no key of this section"),
    "cuda": ("[driver]\ncuda = new\n", 2, "'cuda' expects a version such as 12.2, got 'new'"),
    "number": ("[gpu 0]\nminor = -1\n", 2, "'minor' expects a number 0..255, got '-1'"),
    "overflow": ("[gpu 0]\nminor = 99999999999999999999\n", 2, "'minor' expects a number 0..255"),
    "word": ("[gpu 0]\nmig = maybe\n", 2, "'mig' expects unsupported, off or on, got 'maybe'"),
    "long": (f"[gpu 0]\nname = {'x' * 500}\n", 2, "'name' expects a product name of 1 to 63"),
    "uuid": ("[gpu 0]\nuuid = GPU-1\n", 2, "'uuid' expects GPU- and 8-4-4-4-12"),
    "pci": ("[gpu 0]\npci = 3B:00.0\n", 2, "'pci' expects an address such as"),
    "mig device": ("[gpu 0]\nmig_device = big uuid x\n", 2, "'mig_device' expects PROFILE uuid"),
    "cpus": ("[numa 0]\ncpus = 9-3\n", 2, "'cpus' expects a list such as"),
    "switches": ("[nvswitch 1]\n", 1, "switches are numbered 0, 1, 2"),
    "no name": ("[gpu 0]\nmemory_mib = 1\n", 1, "gpu 0 has no name"),
    "gap": (OTHER, 0, "gpu 0 is missing: GPUs are numbered without a gap"),
    "twice": (GPU + "[gpu 0]\n", 6, "gpu 0 is described twice"),
    "same pci": (
        GPU + OTHER.replace("AF", "3B"),
        6,
        "gpu 0 and gpu 1 have the same pci",
    ),
    "pair unknown": (GPU + "[links]\n0-1 = PIX\n", 7, "a pair is two different GPUs"),
    "link kind": (GPU + "[links]\n0-1 = NEAR\n", 7, "a link is PSB, PIX, PXB, PHB, NODE or SYS"),
    "no link": (GPU + OTHER, 1, "[links] has neither the pair 0-1 nor a default"),
    "nvlinks": (
        GPU + OTHER + "[links]\n0-1 = PIX NV2\n",
        1,
        "gpu 0 has 2 NVLinks but nvlink_slots = 0",
    ),
    "pair twice": (
        GPU + OTHER + "[links]\n0-1 = PIX\n1-0 = PIX\n",
        13,
        "the pair 1-0 is described twice",
    ),
    "process": (GPU + "[processes]\ngpu 0: pid 7\n", 7, "a process needs a pid and a name"),
    "process gpu": (GPU + "[processes]\ngpu 3: pid 7 name x\n", 7, "'gpu 3' is no GPU"),
    "process word": (GPU + "[processes]\ngpu 0: pod 7\n", 7, "a process has no 'pod 7'"),
    "umlaut": ("# für\n[gpu 0]\nname = Größe\n", 3, "holds a character that is not plain ASCII"),
    "binary": ("[driver]\n\0\0\n", 2, "holds a NUL byte: this is not a text file"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_machine_file_is_reported_by_line(start: Start, case: str) -> None:
    """A wrong description makes nvmlInit fail and names file, line and fault on stderr."""
    text, line, sentence = WRONG[case]
    worker = start(text=text)
    assert worker.failure("nvmlInit") == "NVMLError_Unknown"
    assert worker.close().startswith(f"mocknvml: {worker.machine}:{line}: {sentence}")


def test_missing_machine_file_is_reported(start: Start) -> None:
    """A path that leads nowhere is named too."""
    worker = start("no-such-machine")
    assert worker.failure("nvmlInit") == "NVMLError_Unknown"
    assert "no-such-machine.machine:0: cannot be opened: No such file" in worker.close()


@pytest.mark.parametrize(
    "line",
    [
        "gpu 0",
        "gpu 2 lost",
        "gpu 0 lost twice",
        "gpu 0 recovery",
        "gpu 0 recovery soon",
        "xid 79",
        "xid 0 gpu 0",
        "xid 79 gpu 0 gi x",
        "driver asleep",
    ],
)
def test_wrong_state_file_stops_init(start: Start, line: str) -> None:
    """A state that cannot be understood at the start is an error, not a healthy machine."""
    worker = start("t4-2x16", state=f"gpu 0 lost\n{line}\n")
    assert worker.failure("nvmlInit") == "NVMLError_Unknown"
    assert worker.close().startswith(f"mocknvml: {worker.state}:2: '{line}' is not one of:")


@pytest.mark.parametrize("cut", range(0, 1200, 97))
def test_cut_off_machine_file_never_crashes(start: Start, cut: int) -> None:
    """A description cut off anywhere is either read or refused with a sentence."""
    text = build.machine("a100-mig-2x40").read_text()[:cut] or "#"
    worker = start(text=text)
    try:
        worker.call("nvmlInit")
        refused = False
    except NvmlFailure as failure:
        if failure.name != "NVMLError_Unknown":
            raise
        refused = True
    assert worker.close().startswith("mocknvml: ") == refused


def test_machine_without_gpus_is_a_machine(nvml: Start) -> None:
    """A node with a driver and no GPU initializes and counts none."""
    assert nvml(text="[driver]\nversion = 535.1\n").call("nvmlDeviceGetCount") == 0
