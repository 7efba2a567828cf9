"""Workers on which containers find a CUDA driver: the stand-in, given by CDI as NVIDIA's files do.

The file of the vendor's kind names each GPU by its UUID, and the plugin requests a device of it for
each share (``devicePlugin.cdi.gpuKind``).
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final, NamedTuple

from environments import machines, podresources
from environments.drivermode import plugins_run
from environments.environment import MachineGpu
from environments.kind import GPU_MEM, KindEnvironment
from environments.waiting import until
from gpucore.wire.names import VERIFY
from standins.cuda import build

KIND: Final = "nvidia.com/gpu"
CDI_FILE: Final = "/var/run/cdi/nvidia.com-gpu.json"
INSIDE: Final = "/usr/local/gpushare-node"
CONTEXT_MIB: Final = 100
COMMAND_SECONDS: Final = 600
GUARD_LABEL: Final = f"{VERIFY}=guard"


class VerifyAnswer(NamedTuple):
    """What ``gpushare verify`` printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows of the only GPU by name."""
        (gpu,) = json.loads(self.out)["items"]
        return {row["row"]: row for row in gpu["rows"]}


class ProvingNodes:
    """The workers with the stand-in for CUDA."""

    def __init__(self, environment: KindEnvironment) -> None:
        self._environment = environment

    def write(self, node: str, gpus: Sequence[MachineGpu]) -> None:
        """Put library and CDI file on a worker."""
        folder = self._environment.folder / node
        (folder / "cuda").mkdir(exist_ok=True)
        (folder / "cuda").chmod(0o777)
        (folder / "cudalib").mkdir(exist_ok=True)
        shutil.copyfile(build.ensure() / build.LIBRARY, folder / "cudalib" / build.LIBRARY)
        self.give(node, {gpu.uuid: gpu for gpu in gpus})
        self.faults(node)

    def give(self, node: str, devices: Mapping[str, MachineGpu]) -> None:
        """Write the CDI file: by the UUID that is requested, the GPU that a container gets."""
        entries = [{"name": uuid, "containerEdits": _edits(gpu)} for uuid, gpu in devices.items()]
        spec = json.dumps({"cdiVersion": "0.5.0", "kind": KIND, "devices": entries})
        script = f"mkdir -p /var/run/cdi; cat > {CDI_FILE} <<'END'\n{spec}\nEND\n"
        self._environment.on_node(node, script)

    def take(self, node: str) -> None:
        """Remove all of it."""
        self._environment.on_node(node, f"rm -f {CDI_FILE}")
        for name in ("cuda", "cudalib"):
            shutil.rmtree(self._environment.folder / node / name, ignore_errors=True)

    def faults(self, node: str, *words: str) -> None:
        """What is broken in the driver of a worker; nothing without words."""
        (self._environment.folder / node / "cuda" / "faults").write_text(" ".join(words))

    def verify(self, *args: str) -> VerifyAnswer:
        """Run ``gpushare verify`` to its end."""
        done = subprocess.run(
            self.command(*args),
            env=self._environment.kubectl.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
        )
        return VerifyAnswer(done.returncode, done.stdout, done.stderr)

    def begin(
        self, *args: str, output: int | IO[bytes] = subprocess.DEVNULL
    ) -> "subprocess.Popen[bytes]":
        """Start ``gpushare verify``, with its answer to a file."""
        return subprocess.Popen(
            self.command(*args),
            env=self._environment.kubectl.environment,
            stdout=output,
            stderr=subprocess.DEVNULL,
        )

    def command(self, *args: str) -> list[str]:
        """The command with its arguments."""
        return [str(self._environment.tools / "gpushare"), "verify", *args]

    def left(self) -> list[str]:
        """Namespaces of runs that are there."""
        names = self._environment.kubectl("get", "namespaces", "-o", "name").split()
        return [name for name in names if "/gpushare-verify-" in name]

    def guards(self) -> list[str]:
        """Jobs that delete the namespace of a run."""
        return self._environment.kubectl(
            "get", "jobs", "-A", "-l", GUARD_LABEL, "-o", "name"
        ).split()


def _edits(gpu: MachineGpu) -> dict[str, object]:
    env = {
        "FAKECUDA_ROOT": INSIDE,
        "FAKECUDA_MIB": str(gpu.units * machines.MIB_PER_UNIT),
        "FAKECUDA_CONTEXT_MIB": str(CONTEXT_MIB),
        "FAKECUDA_PEER_GB_PER_S": "400",
        f"FAKECUDA_GPU_{gpu.index}": gpu.uuid,
        "LD_LIBRARY_PATH": f"{INSIDE}/cudalib",
    }
    mount = {
        "hostPath": machines.IN_NODE,
        "containerPath": INSIDE,
        "options": ["rw", "nosuid", "nodev", "rbind"],
    }
    return {"env": [f"{key}={value}" for key, value in env.items()], "mounts": [mount]}


def _wait_offered(environment: KindEnvironment, node: str, gpus: Sequence[MachineGpu]) -> None:
    """Until all GPUs are healthy, after their MPS daemons have started, and kubelet has them."""
    units = sum(gpu.units for gpu in gpus)

    def offered() -> bool:
        item = environment.objects.node(node)
        inventory = json.loads(item["metadata"]["annotations"]["gpushare/inventory"])
        healthy = all(gpu["healthy"] for gpu in inventory["gpus"])
        return bool(healthy and item["status"]["allocatable"].get(GPU_MEM) == str(units))

    until(f"{node} offers its GPUs", offered)
    until("kubelet has them", lambda: podresources.allocatable(environment, node) == units)


@contextmanager
def proving(
    environment: KindEnvironment, gpus: Mapping[str, Sequence[MachineGpu]]
) -> Iterator[ProvingNodes]:
    """The workers with CUDA in containers; as before afterwards.

    Args:
        environment: the cluster.
        gpus: of each worker as it is now.
    """
    found, usual = ProvingNodes(environment), environment.values
    try:
        for node, each in gpus.items():
            found.write(node, each)
        plugin = {**usual["devicePlugin"], "cdi": {"gpuKind": KIND}}
        environment.install({**usual, "devicePlugin": plugin})
        plugins_run(environment)
        for node, each in gpus.items():
            _wait_offered(environment, node, each)
        yield found
    finally:
        environment.install(usual)
        for node in gpus:
            found.take(node)
        plugins_run(environment)
