"""What a pod asks for, by kubelet's own formula.

Extended resources are immutable, so the specification is the only text that says amounts; labels
and annotations say how the amount may be placed. A request that no node could ever take is still a
value: its ``fault`` says why.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from gpucore.model import Ask, Demand, Rung
from gpucore.wire import names as wire_names
from gpucore.wire.digits import number
from gpucore.wire.gangs import gang_fault
from gpucore.wire.names import Names
from gpucore.wire.podspec import Container, Pod
from gpucore.wire.quantity import amount
from gpucore.wire.texts import KEPT, Texts, texts_of

_RUNGS: Final = tuple(rung.value for rung in Rung)


def demand_of(pod: Pod, names: Names) -> Demand | None:
    """What ``pod`` asks of GPUs, or ``None`` when it asks nothing.

    Raises:
        WireError: an amount is no Kubernetes quantity (the API server accepts no such pod).
    """
    texts = texts_of(pod, names)
    return None if texts is None else asked_by(texts, names)


@lru_cache(KEPT)
def asked_by(texts: Texts, names: Names) -> Demand | None:
    """What a pod that says ``texts`` asks; otherwise as :func:`demand_of`."""
    pod = texts.pod()
    asks = tuple(_ask(container, names) for container in pod.containers)
    total = _effective(asks, pod.init_containers, names)
    if not total:
        return None
    sidecars = tuple(_ask(each, names) for each in pod.sidecars)
    return _shaped(pod, names, asks + sidecars if any(sidecars) else asks, total)


def _ask(container: Container, names: Names) -> Ask:
    limits = container.limits
    return Ask(
        mem=amount(limits.get(names.gpu_mem, "0")),
        core=amount(limits.get(names.gpu_core, "0")),
        gpus=amount(limits.get(names.gpu, "0")),
    )


def _plus(left: Ask, right: Ask) -> Ask:
    return Ask(left.mem + right.mem, left.core + right.core, left.gpus + right.gpus)


def _most(left: Ask, right: Ask) -> Ask:
    return Ask(max(left.mem, right.mem), max(left.core, right.core), max(left.gpus, right.gpus))


def _effective(asks: Sequence[Ask], inits: Sequence[Container], names: Names) -> Ask:
    """Largest of: containers with all sidecars; each init container with the sidecars before it."""
    running, peak = Ask(), Ask()
    for container in inits:
        ask = _ask(container, names)
        if container.is_sidecar:
            running = _plus(running, ask)
            peak = _most(peak, running)
        else:
            peak = _most(peak, _plus(running, ask))
    for ask in asks:
        running = _plus(running, ask)
    return _most(peak, running)


def _shaped(pod: Pod, names: Names, asks: tuple[Ask, ...], total: Ask) -> Demand:
    cards, policy, isolation = _cards(pod, names), _policy(pod), _isolation(pod)
    topology = pod.annotations.get(wire_names.TOPOLOGY, "").replace("_", "-")
    return Demand(
        containers=asks,
        mem=total.mem,
        core=total.core,
        gpus=total.gpus,
        cards=cards or 1,
        whole_device=_wants_whole_device(pod),
        rung=Rung(isolation) if isolation in _RUNGS else Rung.NONE,
        policy=policy if policy in wire_names.POLICY_NAMES else "",
        topology=topology if topology in wire_names.TOPOLOGY_NAMES else "",
        fault=_fault(total, cards, isolation) or _policy_fault(policy, topology) or gang_fault(pod),
    )


def _cards(pod: Pod, names: Names) -> int | None:
    """Cards to spread over; ``None`` where the label is no positive number."""
    text = pod.labels.get(names.gpu_count)
    return 1 if text is None else number(text, below=1 << 10) or None


def _policy(pod: Pod) -> str:
    return pod.annotations.get(wire_names.POLICY, "")


def _isolation(pod: Pod) -> str:
    return pod.annotations.get(wire_names.ISOLATION, Rung.NONE.value)


def _wants_whole_device(pod: Pod) -> bool:
    return pod.labels.get(wire_names.LABEL_REQUIRE_WHOLE) == wire_names.REQUIRE_WHOLE_DEVICE


def _fault(total: Ask, cards: int | None, isolation: str) -> str:
    if total.gpus and (total.mem or total.core):
        return "it asks for whole cards and for shares at once; ask for one kind"
    if cards is None:
        return "its label gpu-count is no number of cards from 1 to 1023"
    if isolation not in _RUNGS:
        return f"its isolation {isolation[:40]!r} is unknown; use {' or '.join(_RUNGS)}"
    return ""


def _policy_fault(policy: str, topology: str) -> str:
    for kind, text, known in (
        ("policy", policy, wire_names.POLICY_NAMES),
        ("topology policy", topology, wire_names.TOPOLOGY_NAMES),
    ):
        if text and text not in known:
            return f"its {kind} {text[:40]!r} is unknown; use one of {', '.join(known)}"
    return ""
