"""What a person wants to see when a case failed: pods, events and the logs of the stack."""

from environments.kubectl import Kubectl

LOG_LINES = "60"


def report(kubectl: Kubectl, *, stack: str, namespaces: tuple[str, ...]) -> str:
    """Pods and events of the namespaces and the last lines every part of the stack logged.

    Args:
        stack: namespace of the stack itself.
        namespaces: those of the failed case.
    """
    parts = [_section(kubectl, "get", "pods", "-A", "-o", "wide")]
    for namespace in (*namespaces, stack):
        order = ("--sort-by=.lastTimestamp",)
        parts.append(_section(kubectl, "get", "events", "-n", namespace, *order))
        parts.append(_section(kubectl, "describe", "pods", "-n", namespace))
    names = kubectl.attempt("get", "pods", "-n", stack, "-o", "name").stdout.split()
    for pod in names:
        tail = ("--all-containers", "--prefix", "--tail", LOG_LINES)
        parts.append(_section(kubectl, "logs", "-n", stack, pod, *tail))
    return "\n".join(parts)


def _section(kubectl: Kubectl, *args: str) -> str:
    done = kubectl.attempt(*args)
    return f"--- kubectl {' '.join(args)}\n{done.stdout}{done.stderr}"
