"""What can happen next in the small model, one atomic step of one process at a time.

A crash between two steps is a step of its own, so every cut of bind, allocate and reconcile is
explored. Messages to the API server are applied, refused or lost; replies are lost as well.
"""

from collections.abc import Iterator
from typing import NamedTuple

from modeldecisions import Belief, Decider
from modelstate import UNBOUND_GPU, Column, Object, Spot, State, View, World, canonical


class Defects(NamedTuple):
    """Bugs of the shells that can be seeded; all false is the design.

    Attributes:
        drops_unknown: a bind whose reply is lost gives its reservation back.
        no_arbiter: the plugin hands out the planned GPU without looking at the checkpoint.
        no_reconcile: nobody corrects the annotations to the truth.
    """

    drops_unknown: bool = False
    no_arbiter: bool = False
    no_reconcile: bool = False


class Steps:
    """Successors of a state."""

    def __init__(self, world: World, decider: Decider, defects: Defects) -> None:
        self._world = world
        self._decider = decider
        self._defects = defects

    def after(self, state: State) -> Iterator[State]:
        """Every state that one step can lead to."""
        for scheduler in range(self._world.schedulers):
            yield from self._observed(state, scheduler)
            yield from self._bound(state, scheduler)
            yield from self._expired(state, scheduler)
            yield self._crashed(state, scheduler)
        for position, column in enumerate(state):
            for changed in self._on_node(state, column):
                yield _with(state, position, changed)
            for changed in self._outside(state, column):
                yield _with(state, position, changed)

    def _observed(self, state: State, scheduler: int) -> Iterator[State]:
        """The watch delivers the current state of a pod; states between may be skipped."""
        for position, column in enumerate(state):
            view = column.views[scheduler]
            if column.api.spot is None:
                continue
            after = view.after(column.api)
            if view.seen[-1:] != after.seen[-1:]:
                yield _with(state, position, _viewed(column, scheduler, after))

    def _bound(self, state: State, scheduler: int) -> Iterator[State]:
        """Reserve, then POST: applied with the reply heard or lost, refused, or lost on the way."""
        for position, spot in self._decider.options(_belief(state, scheduler)):
            column = state[position]
            reserved = _viewed(column, scheduler, View((), spot))
            yield _with(state, position, reserved)
            if column.api.spot is None:
                yield _with(state, position, reserved._replace(api=Object(spot)))
                if self._defects.drops_unknown:
                    forgotten = _viewed(column, scheduler, View())
                    yield _with(state, position, forgotten._replace(api=Object(spot)))

    @staticmethod
    def _expired(state: State, scheduler: int) -> Iterator[State]:
        """A reservation times out; the time to live is longer than bind and watch can take."""
        for position, column in enumerate(state):
            if column.views[scheduler].assumed is not None and column.api.spot is None:
                yield _with(state, position, _viewed(column, scheduler, View()))

    @staticmethod
    def _crashed(state: State, scheduler: int) -> State:
        """The process restarts: reservations are lost, a list of all pods is read."""
        return canonical(
            [
                _viewed(c, scheduler, View().after(c.api) if c.api.spot is not None else View())
                for c in state
            ]
        )

    def _on_node(self, state: State, column: Column) -> Iterator[Column]:
        """Kubelet and plugin of the node that the pod is bound to."""
        spot, phase = column.api.spot, column.api.phase
        if spot is None:
            return
        if phase == "terminating":
            yield column._replace(api=Object(spot, column.api.assigned, "gone"), held=UNBOUND_GPU)
        elif phase == "live" and column.held == UNBOUND_GPU:
            yield from self._admitted(state, column, spot)
        if column.held != UNBOUND_GPU and not self._defects.no_reconcile:
            truth = Spot(spot.node, column.held)
            if (spot, column.api.assigned) != (truth, True):
                yield column._replace(api=Object(truth, True, phase))

    def _admitted(self, state: State, column: Column, spot: Spot) -> Iterator[Column]:
        """Kubelet calls without identity: the plugin may mean any waiting pod of this size."""
        planned = {
            c.api.spot
            for c in state
            if c.api.spot and c.api.spot.node == spot.node and c.size == column.size
            and c.held == UNBOUND_GPU and c.api.phase == "live"
        }  # fmt: skip
        for plan in planned:
            gpu = plan if self._defects.no_arbiter else self._best(state, column.size, plan)
            if gpu is None:
                yield column._replace(api=Object(spot, column.api.assigned, "failed"))
            else:
                yield column._replace(held=gpu.gpu)

    def _best(self, state: State, size: int, plan: Spot) -> Spot | None:
        """The planned GPU, else the fullest other that has room by the checkpoint."""
        spots = [Spot(plan.node, gpu) for gpu in range(len(self._world.nodes[plan.node]))]
        fitting = [spot for spot in spots if self._world.room(state, spot) >= size]
        if plan in fitting:
            return plan
        return min(fitting, key=lambda spot: self._world.room(state, spot), default=None)

    def _outside(self, state: State, column: Column) -> Iterator[Column]:
        """A user deletes a pod; a controller replaces a failed one once everybody saw it fail."""
        api = column.api
        deleted = sum(c.api.phase in {"terminating", "gone"} for c in state)
        if api.spot is not None and api.phase == "live" and deleted < self._world.deletes:
            yield column._replace(api=api._replace(phase="terminating"))
        if api.phase == "failed" and all(
            view.seen[-1:] == View().after(api).seen for view in column.views
        ):
            yield Column(column.size, Object(), UNBOUND_GPU, (View(),) * len(column.views))


def _belief(state: State, scheduler: int) -> Belief:
    return tuple((column.size, column.views[scheduler]) for column in state)


def _viewed(column: Column, scheduler: int, view: View) -> Column:
    views = list(column.views)
    views[scheduler] = view
    return column._replace(views=tuple(views))


def _with(state: State, position: int, column: Column) -> State:
    return canonical([*state[:position], column, *state[position + 1 :]])
