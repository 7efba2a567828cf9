"""The script that starts a model server, in every shell here, compared with servingrule.py."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servingrule import NoFraction, fraction, quotient, share_in

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[1] / "gpu-serving" / "files" / "start.sh"
LINES = {
    "dash": ["dash"],
    "busybox": ["busybox", "sh"],
    "bash": ["bash", "--posix"],
    "sh": ["sh"],
}
SHELLS = {name: line for name, line in LINES.items() if shutil.which(line[0])}
"""Whatever is here; `sh` always is."""
AWKS = [name for name in ("mawk", "gawk", "busybox") if shutil.which(name)]
SHARE = {"ALIYUN_COM_GPU_MEM_CONTAINER": "3", "ALIYUN_COM_GPU_MEM_DEV": "15"}
SHOW = ["sh", "-c", 'echo "$@"; env', "server"]
REFUSED = 64
ALLOCATOR, OLD_ALLOCATOR = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"

NUMBERS = st.one_of(
    st.integers(1, 200_000).map(str), st.sampled_from(["", "0", "03", "-1", "x", "9" * 10, "1 1"])
)
ENVIRONMENTS = st.fixed_dictionaries(
    {"ALIYUN_COM_GPU_MEM_CONTAINER": NUMBERS, "ALIYUN_COM_GPU_MEM_DEV": NUMBERS},
    optional={
        "ALIYUN_COM_GPU_MEM_IDX": st.sampled_from(["0", "7", "0,1", "0,2,3", "-1", "", ",", "1,"]),
        "GPUSHARE_MEM_LIMIT_MIB": NUMBERS,
        "GPUSHARE_MEM_FRACTION": st.sampled_from(
            ["0.1750", "0.0008", "0.0999", "0.0000", "1.0000", "0.5", "01.0000", "-0.1000", "", "x"]
        ),
    },
)


def start(
    server: str,
    env: Mapping[str, str],
    *,
    shell: Sequence[str] = ("sh",),
    rule: str = "share",
    context_mib: int = 600,
    processes: int = 1,
    command: Sequence[str] = SHOW,
    path: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the script as a container would, with nothing else in the environment but PATH."""
    line = [str(SCRIPT), server, rule, str(context_mib), str(processes), "ALIYUN_COM", *command]
    return subprocess.run(
        [*shell, *line],
        env={"PATH": path or os.environ["PATH"], **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def variables(output: str) -> dict[str, str]:
    """The environment that the started command printed after its arguments."""
    return dict(line.split("=", 1) for line in output.splitlines()[1:] if "=" in line)


def with_torch(folder: Path, version: str) -> str:
    """A PATH whose Python reports that it has PyTorch of this version."""
    python = folder / "python3"
    python.write_text(f"#!/bin/sh\necho {version}\n")
    python.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    env=ENVIRONMENTS,
    rule=st.sampled_from(["share", "quotient"]),
    context_mib=st.integers(0, 2000),
    processes=st.integers(1, 4),
)
def test_every_shell_gives_the_figure_of_the_rule_or_its_refusal(
    shell: str, env: dict[str, str], rule: str, context_mib: int, processes: int
) -> None:
    """Fraction, sentence and exit status are those of the rule for any environment."""
    share = share_in(env)
    if isinstance(share, NoFraction):
        expected: str | NoFraction = share
    elif rule == "quotient":
        expected = quotient(share)
    else:
        expected = fraction(share, context_mib=context_mib, processes=processes)
    done = start(
        "tensorflow",
        env,
        shell=SHELLS[shell],
        rule=rule,
        context_mib=context_mib,
        processes=processes,
        command=["echo"],
    )
    if isinstance(expected, NoFraction):
        assert (done.returncode, done.stdout) == (REFUSED, "")
        assert done.stderr == f"gpushare: {expected.reason}\n"
    else:
        assert done.stdout == f"--per_process_gpu_memory_fraction={expected}\n"
        assert done.returncode == 0


@pytest.mark.parametrize("awk", AWKS)
@pytest.mark.parametrize(
    ("units", "gpu", "text"),
    [(3, 15, "0.20"), (3, 16, "0.19"), (4, 11, "0.36"), (1, 15, "0.07"), (1, 8, "0.12")],
)
def test_every_awk_prints_the_originals_quotient(
    tmp_path: Path, awk: str, units: int, gpu: int, text: str
) -> None:
    """Ties and ends of decimals come out alike in all of them."""
    (tmp_path / "awk").symlink_to(str(shutil.which(awk)))
    env = {"ALIYUN_COM_GPU_MEM_CONTAINER": str(units), "ALIYUN_COM_GPU_MEM_DEV": str(gpu)}
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = start("vllm", env, rule="quotient", command=["echo"], path=path)
    assert done.stdout == f"--gpu-memory-utilization={text}\n"


def test_the_default_rule_needs_no_program_but_the_server(tmp_path: Path) -> None:
    """An image with neither awk nor anything else on PATH can start."""
    (tmp_path / "server").symlink_to(str(shutil.which("echo")))
    shell = [str(shutil.which("sh"))]
    done = start("tensorflow", SHARE, shell=shell, command=["server"], path=str(tmp_path))
    assert done.stdout == "--per_process_gpu_memory_fraction=0.150878\n"


def test_what_the_operator_keeps_lowers_the_fraction() -> None:
    """40 GiB of which 8 are kept: 7 of the 32 units are 0.1750 of what programs see."""
    env = {"ALIYUN_COM_GPU_MEM_CONTAINER": "7", "ALIYUN_COM_GPU_MEM_DEV": "32"}
    plain = start("tensorflow", env, command=["echo"])
    assert plain.stdout == "--per_process_gpu_memory_fraction=0.194365\n"
    kept = start("tensorflow", env | {"GPUSHARE_MEM_FRACTION": "0.1750"}, command=["echo"])
    assert kept.stdout == "--per_process_gpu_memory_fraction=0.155492\n"


def test_an_image_without_awk_cannot_have_the_quotient(tmp_path: Path) -> None:
    """It gets an error instead of being started without a limit."""
    shell = [str(shutil.which("sh"))]
    done = start("tensorflow", SHARE, shell=shell, rule="quotient", path=str(tmp_path))
    assert (done.returncode, done.stdout) == (REFUSED, "")
    assert "this image has no awk" in done.stderr


@pytest.mark.parametrize(
    ("server", "option"),
    [
        ("tensorflow", "--per_process_gpu_memory_fraction=0.150878"),
        ("vllm", "--gpu-memory-utilization=0.150878"),
        ("triton", "--backend-config=tensorflow,gpu-memory-fraction=0.150878"),
        ("torchserve", ""),
        ("custom", ""),
    ],
)
def test_each_server_is_configured_in_its_own_way(server: str, option: str) -> None:
    """Options follow the server's own arguments; the variable is there for all."""
    done = start(server, SHARE, command=[*SHOW, "--own"])
    assert done.stdout.splitlines()[0] == f"--own {option}".strip()
    assert variables(done.stdout)["GPUSHARE_PROCESS_MEM_FRACTION"] == "0.150878"


def test_jax_is_limited_unless_the_user_has_configured_how() -> None:
    """JAX fails on both of its variables at once, so a user's is never joined by ours."""
    old, new = "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"
    assert variables(start("custom", SHARE).stdout)[old] == "0.150878"
    theirs = variables(start("custom", SHARE | {new: "0.1"}).stdout)
    assert (theirs[new], old in theirs) == ("0.1", False)
    assert variables(start("custom", SHARE | {old: "0.1"}).stdout)[old] == "0.1"


@pytest.mark.parametrize(
    ("torch", "limited"),
    [
        ("2.10.0+cu128", True),
        ("2.11.0", True),
        ("3.0.0", True),
        ("2.9.1", False),
        ("2.4.0", False),
        ("1.13.1", False),
    ],
)
def test_pytorch_is_limited_where_it_can_be(tmp_path: Path, torch: str, limited: object) -> None:
    """From 2.10 on through its allocator's options; older ones are named."""
    done = start("torchserve", SHARE, path=with_torch(tmp_path, torch))
    found = variables(done.stdout).get(ALLOCATOR)
    assert found == ("per_process_memory_fraction:0.150878" if limited else None)
    assert (f"PyTorch {torch} takes no limit" in done.stderr) is not limited


@pytest.mark.parametrize("theirs", [(ALLOCATOR,), (OLD_ALLOCATOR,), (ALLOCATOR, OLD_ALLOCATOR)])
def test_pytorchs_limit_joins_whatever_options_the_user_has_set(
    tmp_path: Path, theirs: tuple[str, ...]
) -> None:
    """PyTorch reads one variable of two: each that is set has both, and no other comes beside."""
    env = SHARE | dict.fromkeys(theirs, "expandable_segments:True")
    found = variables(start("custom", env, path=with_torch(tmp_path, "2.10.0")).stdout)
    both = "expandable_segments:True,per_process_memory_fraction:0.150878"
    set_now = {name: found[name] for name in (ALLOCATOR, OLD_ALLOCATOR) if name in found}
    assert set_now == dict.fromkeys(theirs, both)


def test_images_without_pytorch_are_left_alone(tmp_path: Path) -> None:
    """No Python, or one without torch, is no error and sets nothing."""
    (tmp_path / "python3").symlink_to(str(shutil.which("false")))
    done = start("triton", SHARE, path=f"{tmp_path}:{os.environ['PATH']}")
    assert not {ALLOCATOR, OLD_ALLOCATOR} & variables(done.stdout).keys()
    assert done.stderr == "gpushare: 3 of 15 units on GPU 0: fraction 0.150878\n"


def test_shared_memory_of_its_own_is_refused_behind_mps() -> None:
    """It would hide the daemon's; without MPS it is fine, and so is MPS without it."""
    own, pipes = {"GPUSHARE_OWN_SHM": "2Gi"}, {"CUDA_MPS_PIPE_DIRECTORY": "/pipes"}
    refused = start("custom", SHARE | own | pipes)
    assert refused.returncode == REFUSED
    assert "leave sharedMemory (--share-memory) out" in refused.stderr
    assert [start("custom", SHARE | one).returncode for one in (own, pipes)] == [0, 0]


def test_the_server_takes_the_scripts_place() -> None:
    """Signals of kubelet reach the server, since the script is gone when it runs."""
    done = start("custom", SHARE, command=["sh", "-c", "echo $PPID"])
    assert done.stdout.strip() == str(os.getpid())


def test_arguments_are_passed_as_they_are() -> None:
    """Spaces, quotes and patterns of a model's path are no words of the shell."""
    odd = "a b  'c' \"d\" * $HOME"
    done = start("custom", SHARE, command=["printf", "%s|", odd])
    assert done.stdout == f"{odd}|"


LIMITED = {**SHARE, "GPUSHARE_MEM_LIMIT_MIB": "3072", "NVIDIA_GPU_MEMORY_LIMIT": "3072"}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_fraction_is_one_of_the_memory_that_a_limited_program_sees(
    tmp_path: Path, shell: str
) -> None:
    """A driver's limit may be all that CUDA reports; without CUDA it is the GPU."""
    line = SHELLS[shell]
    limited = start("tensorflow", LIMITED, shell=line, path=with_torch(tmp_path, "3072"))
    expected = f"{(3072 - 600) * 1_000_000 // 3073 / 1_000_000:.6f}"
    assert variables(limited.stdout)["GPUSHARE_PROCESS_MEM_FRACTION"] == expected
    whole = f"{(3072 - 600) * 1_000_000 // (16 * 1024) / 1_000_000:.6f}"
    for text in ("16130", "unknown", "12"):
        seen = start("tensorflow", LIMITED, shell=line, path=with_torch(tmp_path, text))
        found = variables(seen.stdout)["GPUSHARE_PROCESS_MEM_FRACTION"]
        assert found == (whole if text != "16130" else f"{2472 * 1_000_000 // 16131 / 1e6:.6f}")
    unlimited = {key: LIMITED[key] for key in LIMITED if key != "NVIDIA_GPU_MEMORY_LIMIT"}
    free = start("tensorflow", unlimited, shell=line, path=with_torch(tmp_path, "3072"))
    assert variables(free.stdout)["GPUSHARE_PROCESS_MEM_FRACTION"] == whole


@pytest.mark.parametrize("shell", SHELLS)
def test_a_pod_that_may_use_more_than_its_share_sees_its_own_limit(
    tmp_path: Path, shell: str
) -> None:
    """The plugin gives it no NVIDIA_GPU_MEMORY_LIMIT; CUDA may tell of the larger limit alone."""
    given = {**SHARE, "GPUSHARE_MEM_LIMIT_MIB": "3072", "GPUSHARE_MAY_BURST": "5"}
    path = with_torch(tmp_path, "5120")
    seen = start("tensorflow", given, shell=SHELLS[shell], path=path)
    expected = f"{(3072 - 600) * 1_000_000 // 5121 / 1_000_000:.6f}"
    assert variables(seen.stdout)["GPUSHARE_PROCESS_MEM_FRACTION"] == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_vllm_gets_the_size_of_its_cache_where_the_size_of_the_model_is_known(shell: str) -> None:
    """What the share has left; nothing left is refused; without the size vLLM measures."""
    line = SHELLS[shell]
    done = start("vllm", {**SHARE, "GPUSHARE_MODEL_MIB": "2000"}, shell=line)
    assert f"--kv-cache-memory-bytes={(3072 - 600 - 2000) << 20}" in done.stdout.split()
    assert "--kv-cache" not in start("vllm", SHARE, shell=line).stdout
    small = start("vllm", {**SHARE, "GPUSHARE_MODEL_MIB": "2472"}, shell=line)
    assert small.returncode == REFUSED
    assert "leave nothing for the KV cache" in small.stderr
