"""``gpushare inspect`` on a terminal: a block for each node, a line with a bar for each GPU.

Every line fits the width of the terminal. Only GPUs that exist have a line. Programs read the
original's table or ``-o json``, because this layout may change.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from gpucore.units import counted
from gpuinspect.queries.views import ClusterView, GpuSummary, NodeSummary, percent
from gpuinspect.terminal.output import one_line

LEAST: Final = 60
"""Columns that are used even where the terminal has fewer."""
_BAR: Final = range(8, 25)
_PODS: Final = 30
"""Columns that are kept for the names of pods, if the terminal has them."""
_BLOCKS: Final = ("█", "░")
_PLAIN: Final = ("#", ".")


def fitted(view: ClusterView, width: int, *, blocks: bool) -> str:
    """The nodes and the totals of the cluster.

    Args:
        width: columns of the terminal.
        blocks: the terminal shows block characters; ``#`` and ``.`` otherwise.
    """
    lines = _Lines(view, max(width, LEAST), _BLOCKS if blocks else _PLAIN)
    text = [line for node in view.nodes for line in lines.of(node)]
    return "".join(f"{line}\n" for line in [*text, "", *_totals(view)])


class _Lines:
    """The lines of one terminal; all nodes have the same columns."""

    def __init__(self, view: ClusterView, width: int, marks: tuple[str, str]) -> None:
        self._width, self._marks, self._unit = width, marks, str(view.unit)
        gpus = [(node, gpu) for node in view.nodes for gpu in node.gpus]
        self._models = max((len(_model(gpu)) for _, gpu in gpus), default=0)
        self._amounts = max((len(_amount(gpu)) for _, gpu in gpus), default=0)
        self._states = max((len(_state(gpu)) for _, gpu in gpus), default=0)
        fixed = len("  GPU 00  ") + self._amounts + self._models + self._states + 6
        self._bar = min(max(width - fixed - _PODS, _BAR.start), _BAR.stop - 1)

    def of(self, node: NodeSummary) -> Iterator[str]:
        """The head of a node, its GPUs, and its units on no known GPU."""
        yield self._cut("  ".join(_head(node, self._unit)))
        for gpu in node.gpus:
            yield self._gpu(node, gpu)
        if node.pending:
            names = [f"{pod.name} {pod.pending}" for pod in node.pods if pod.pending]
            yield self._cut(f"  GPU ?   {node.pending} pending  {self._named(names, 20)}")

    def _gpu(self, node: NodeSummary, gpu: GpuSummary) -> str:
        left = (
            f"  GPU {gpu.index:<2}  {self._filled(gpu)}  {_amount(gpu):>{self._amounts}}"
            f"  {_model(gpu):<{self._models}}  {_state(gpu):<{self._states}}"
        )
        held = [(pod.name, pod.gpus[gpu.index]) for pod in node.pods if gpu.index in pod.gpus]
        names = [f"{name} {units}" if len(held) > 1 else name for name, units in held]
        return self._cut(f"{left}  {self._named(names, len(left) + 2)}".rstrip())

    def _filled(self, gpu: GpuSummary) -> str:
        count = min(round(self._bar * gpu.used / max(gpu.total, 1)), self._bar)
        count = max(count, 1) if gpu.used else 0
        return self._marks[0] * count + self._marks[1] * (self._bar - count)

    def _named(self, names: list[str], start: int) -> str:
        """As many names as fit, and the number of the others."""
        for kept in range(len(names), 0, -1):
            rest = f", +{len(names) - kept}" if kept < len(names) else ""
            text = ", ".join(names[:kept]) + rest
            if start + len(text) <= self._width:
                return text
        return f"{len(names)} pods" if names else ""

    def _cut(self, line: str) -> str:
        return line if len(line) <= self._width else line[: self._width - 1] + "~"


def _head(node: NodeSummary, unit: str) -> Iterator[str]:
    yield one_line(node.name)
    yield f"{node.used}/{node.total} {unit} ({percent(node.used, node.total)}%)"
    if not node.ready:
        yield "NotReady"
    if node.cordoned:
        yield "cordoned"
    if node.lost:
        yield f"{node.lost} {unit} on GPUs that the node no longer has"
    if node.address:
        yield one_line(node.address)


def _amount(gpu: GpuSummary) -> str:
    return f"{gpu.used}/{gpu.total}"


def _model(gpu: GpuSummary) -> str:
    return one_line(gpu.model.removeprefix("NVIDIA ")) or "unknown"


def _state(gpu: GpuSummary) -> str:
    """Health first, then what else is unusual; empty for a healthy GPU without isolation."""
    marks = (
        ("unhealthy", not gpu.healthy),
        ("over-full", gpu.used > gpu.total),
        ("exclusive", gpu.exclusive),
        (gpu.mode, gpu.mode != "none"),
    )
    return ",".join(word for word, holds in marks if holds)


def _totals(view: ClusterView) -> Iterator[str]:
    gpus = [gpu for node in view.nodes for gpu in node.gpus]
    models = Counter(_model(gpu) for gpu in gpus)
    listed = ", ".join(f"{count} x {model}" for model, count in sorted(models.items()))
    share = f"{view.used}/{view.total} {view.unit} ({percent(view.used, view.total)}%)"
    yield f"Allocated: {share} on {counted(len(view.nodes), 'node')}, {counted(len(gpus), 'GPU')}"
    if listed:
        yield f"Models: {listed}"
    bad = sum(not gpu.healthy for gpu in gpus)
    if bad:
        yield f"Unhealthy: {counted(bad, 'GPU')}"
