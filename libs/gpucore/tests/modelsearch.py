"""The search over all states of the small model, and what must hold in them.

Safety is checked in every state. Liveness: from every state that can be reached, a state in which
all is well can still be reached; crashes and losses may come at any time, but not for ever.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from modeldecisions import Decider
from modelstate import UNBOUND_GPU, Column, Object, Spot, State, View, World
from modelsteps import Defects, Steps

from gpucore.accounting.ledger import Ledger


class ViolationError(AssertionError):
    """A state breaks what must hold."""


class Explored(NamedTuple):
    """How much was looked at."""

    states: int
    steps: int
    good: int


def explore(
    world: World, make: Callable[..., Ledger] = Ledger, defects: Defects = Defects(),  # noqa: B008
    *, sole: bool = False,
) -> Explored:  # fmt: skip
    """Visit every state.

    Args:
        world: nodes, pods and schedulers.
        make: the ledger that schedulers use.
        defects: bugs of the shells.
        sole: one scheduler decides, so plans themselves must never clash.

    Raises:
        ViolationError: something that must hold does not.
    """
    decider = Decider(world, make)
    steps = Steps(world, decider, defects)
    truth = Decider(world)
    start = world.start()
    parents: dict[State, list[State]] = {start: []}
    queue, count = deque([start]), 0
    while queue:
        state = queue.popleft()
        _check(world, state, sole=sole)
        _check_counts(world, decider, state)
        for successor in steps.after(state):
            if successor == state:
                continue
            count += 1
            _check_one_decision(state, successor)
            if successor not in parents:
                parents[successor] = []
                queue.append(successor)
            parents[successor].append(state)
    good = [state for state in parents if _all_is_well(truth, state)]
    _check_reachable(good, parents)
    return Explored(len(parents), count, len(good))


def _check(world: World, state: State, *, sole: bool) -> None:
    for node, sizes in world.nodes.items():
        for gpu in range(len(sizes)):
            if world.room(state, Spot(node, gpu)) < 0:
                raise ViolationError(f"GPU {gpu} of {node} is over-committed: {state}")
        planned = sum(c.size for c in state if _counts(c.api) and _node(c.api) == node)
        if sole and planned > sum(sizes):
            raise ViolationError(f"more than node {node} has is planned for it: {state}")
    if sole and any(column.api.phase == "failed" for column in state):
        raise ViolationError(f"a planned pod was refused by its node: {state}")


def _check_counts(world: World, decider: Decider, state: State) -> None:
    """A scheduler that has seen all there is counts what the annotations say, GPU by GPU."""
    recorded = {Spot(n, i): 0 for n, sizes in world.nodes.items() for i in range(len(sizes))}
    for column in state:
        if column.api.spot is not None and _counts(column.api):
            recorded[column.api.spot] += column.size
    for scheduler in range(world.schedulers):
        if all(_is_current(column, scheduler) for column in state):
            counted = decider.counted(tuple((c.size, c.views[scheduler]) for c in state))
            if counted != recorded:
                raise ViolationError(f"a scheduler counts {counted}, not {recorded}: {state}")


def _is_current(column: Column, scheduler: int) -> bool:
    view = column.views[scheduler]
    if column.api.spot is None:
        return view.assumed is None
    return view.seen[-1:] == View().after(column.api).seen


def _node(api: Object) -> str | None:
    return api.spot.node if api.spot else None


def _counts(api: Object) -> bool:
    return api.phase in {"live", "terminating"}


def _check_one_decision(before: State, after: State) -> None:
    """A pod that is bound stays on its node until it is gone, failed or replaced."""
    nodes = sorted(c.api.spot.node for c in before if c.api.spot and _counts(c.api))
    later = sorted(c.api.spot.node for c in after if c.api.spot)
    for node in set(nodes):
        if later.count(node) < nodes.count(node):
            raise ViolationError(f"a bound pod left its node: {before} -> {after}")


def _all_is_well(truth: Decider, state: State) -> bool:
    """Node and annotation agree, and who waits fits nowhere."""
    for column in state:
        api = column.api
        if api.phase == "gone":
            continue
        if api.spot is None:
            continue
        held = api.phase == "live" and column.held == api.spot.gpu and api.assigned
        if not held or column.held == UNBOUND_GPU:
            return False
    belief = tuple((c.size, View((c.api,) if c.api.spot else ())) for c in state)
    return not truth.options(belief)


def _check_reachable(good: list[State], parents: dict[State, list[State]]) -> None:
    reached, stack = set(good), list(good)
    while stack:
        for parent in parents[stack.pop()]:
            if parent not in reached:
                reached.add(parent)
                stack.append(parent)
    stuck = next((state for state in parents if state not in reached), None)
    if stuck is not None:
        raise ViolationError(f"from here all is never well again: {stuck}")
