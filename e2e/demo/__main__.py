"""Bring the demo up, show it, or take it away.

    python -m demo up      create or update the cluster, the stack and the sample pods
    python -m demo down    remove all of it

A second ``up`` reuses what is there. Progress goes to standard error, what the commands print to
standard output.
"""

import argparse
import sys

import yaml

from environments import table, workloads
from environments.environment import UnavailableError
from environments.kind import KindEnvironment
from environments.kubectl import KubectlError
from environments.waiting import PATIENCE_SECONDS
from host.commands import run_command
from host.errors import SetupError
from host.progress import step
from host.solerun import sole_run
from preflight.require import require

NAME = "gpushare-demo"
MACHINES = ("t4-2x16", "a100-pcie-4x40")
SPACE = "demo"
SAMPLES = {"binpack": (2, 3), "training": (24, 2), "notebook": (5, 1)}
"""Deployment -> (units of each pod, replicas)."""
LARGE = 41
"""Units of a pod that waits: no GPU of the machines has so many."""
PAGES_IMAGE = "docker.io/library/busybox:1.36"
"""What the tutorial calls an image with a shell."""
ASK_SECONDS = 60
INTERRUPTED = (
    "interrupted; `make demo` goes on from here (a cluster that was half created is made anew), "
    "`make demo-down` removes it"
)
INTERRUPTED_STATUS = 130
"""That of a shell whose command was ended with Ctrl-C."""

NEXT = """
Try next, in this shell:

  export KUBECONFIG={kubeconfig} PATH={path}:$PATH

  gpushare dashboard                                            http://127.0.0.1:8080/
  kubectl inspect gpushare -d                                   which pod holds which GPU
  kubectl get pods -n demo -o wide                              the sample pods
  kubectl exec -n demo deploy/binpack -- env | grep GPU         variables of a container
  kubectl scale -n demo deploy/training --replicas=6            ask for more than there is ...
  kubectl get events -n demo --field-selector reason=FailedScheduling     ... and read why it waits

  make demo-down                                                remove all of it
"""


def up(name: str) -> None:
    """The cluster, the stack, the pods, and what the commands of every day print."""
    world = KindEnvironment(name, MACHINES)
    require()
    world.start()
    with step("run sample pods that share GPUs"):
        _samples(world)
        _load_pages_image(world)
    _show(world)


def _show(world: KindEnvironment) -> None:
    """The table, why a pod waits, where another one would go, and what to try next."""
    manifest = world.folder / "notebook.yaml"
    another = workloads.pod("notebook", [8], namespace=SPACE, image=world.image)
    manifest.write_text(yaml.safe_dump(another))
    print(f"\n$ kubectl inspect gpushare\n{table.inspect(world)}", end="")
    for words in (("explain", "pod", f"{SPACE}/large"), ("whatif", "-f", str(manifest))):
        print(f"\n$ gpushare {' '.join(words)}\n{_gpushare(world, *words)}", end="")
    print(NEXT.format(kubeconfig=world.kubectl.kubeconfig, path=world.tools), end="")


def _gpushare(world: KindEnvironment, *words: str) -> str:
    environment = {"KUBECONFIG": str(world.kubectl.kubeconfig)}
    return run_command([world.tools / "gpushare", *words], timeout_s=ASK_SECONDS, env=environment)


def _load_pages_image(world: KindEnvironment) -> None:
    """Give the sample image, which has a shell, the tutorial's name too: no registry is needed."""
    names = f"docker.io/{world.image} {PAGES_IMAGE}"
    for node in world.nodes:
        world.on_node(node, f"ctr -n k8s.io images tag --force {names}")


def _samples(world: KindEnvironment) -> None:
    objects = [
        workloads.deployment(name, units, replicas=count, namespace=SPACE, image=world.image)
        for name, (units, count) in SAMPLES.items()
    ]
    large = workloads.pod("large", [LARGE], namespace=SPACE, image=world.image)
    world.kubectl.apply(workloads.namespace(SPACE), *objects, large)
    limit = f"--timeout={PATIENCE_SECONDS}s"
    for name in SAMPLES:
        world.kubectl("rollout", "status", f"deployment/{name}", "-n", SPACE, limit)


def main() -> int:
    """Exit code 0, or 1 with one sentence of what to do."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("action", choices=("up", "down"))
    parser.add_argument("--name", default=NAME, help="of the kind cluster (default: %(default)s)")
    options = parser.parse_args()
    try:
        with sole_run(options.name):
            up(options.name) if options.action == "up" else KindEnvironment(options.name).stop()
    except (SetupError, UnavailableError, KubectlError, AssertionError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"demo: {INTERRUPTED}", file=sys.stderr)
        return INTERRUPTED_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(main())
