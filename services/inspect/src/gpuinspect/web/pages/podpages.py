"""Pods: those that wait, with their reasons; and one pod with its whole explanation."""

from typing import Final

from gpuinspect.explaining import Explanation, Group
from gpuinspect.layout.explanation import figures, nodes
from gpuinspect.web.feed import Frame
from gpuinspect.web.markup import Markup, el, table

SHOWN: Final = 200  # oldest first; a longer list is counted


def waiting(frame: Frame) -> Markup:
    """Every pod that waits, with the reason of most nodes."""
    rows = []
    for pod, demand in frame.waiting[:SHOWN]:
        found = frame.reason(pod, demand)
        link = el("a", f"{pod.namespace}/{pod.name}", href=f"/pods/{pod.namespace}/{pod.name}")
        rows.append((link, found.asks, _short(found), pod.creation))
    rest = len(frame.waiting) - len(rows)
    return el(
        "div",
        el("h1", "Waiting pods"),
        table(
            ("Pod", "Asks", "Why it waits", "Since"),
            rows,
            caption="Pods that ask for GPUs",
            stacks=True,
        )
        if rows
        else el("p", "No pod that asks for GPUs waits."),
        el("p", f"and {rest} more") if rest else None,
    )


def _short(found: Explanation) -> str:
    if found.gates or found.fits:
        return found.helps[0]
    return "; ".join(f"{nodes(len(g.nodes))}: {figures(g)}" for g in found.groups[:2]) or "no node"


def pod(found: Explanation) -> Markup:
    """Where it sits or why it waits, node by node in groups, and what would help."""
    asked, words = found.pod, found.sightings.last_words
    facts = (
        ("State", found.state.value),
        ("Asks", found.asks),
        ("Where", found.where),
        ("Why there", found.why),
        ("Policy", str(found.policy)),
        ("Node", el("a", asked.node, href=f"/nodes/{asked.node}") if asked.node else ""),
        ("Scheduler", asked.scheduler_name),
        ("It says", "" if asked.node else words),
    )
    return el(
        "div",
        el("h1", f"{asked.namespace}/{asked.name}"),
        el("dl", [el("div", el("dt", k), el("dd", v)) for k, v in facts if v]),
        [el("p", line) for line in found.neighbours],
        [el("p", fault, class_="problem") for fault in found.faults],
        _groups(found.groups),
        el("h2", "What would help") if found.helps else None,
        el("ul", [el("li", each) for each in found.helps]) if found.helps else None,
    )


def _groups(groups: tuple[Group, ...]) -> Markup | None:
    if not groups:
        return None
    rows = (
        (len(group.nodes), group.code.value, figures(group), group.example, group.remedy)
        for group in groups
    )
    heads = ("Nodes", "Reason", "Figures", "Nearest", "What to do")
    return table(heads, rows, caption="Who refuses it", stacks=True)
