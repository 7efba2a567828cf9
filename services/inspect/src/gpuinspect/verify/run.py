"""A run from its first look at the cluster to the removal of its last object."""

import secrets
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from queue import Empty, SimpleQueue
from random import shuffle
from threading import Lock, Thread
from types import FrameType
from typing import TYPE_CHECKING, Final

import msgspec

from gpucore.wire.names import Names
from gpuinspect.cluster.collect import COUNTED, live, live_on_node
from gpuinspect.cluster.schedulers import unread_health
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.errors import InspectError
from gpuinspect.verify import rights
from gpuinspect.verify.image import image_on, plugin_pods, pull_secrets_on
from gpuinspect.verify.objects import NAMESPACE_PREFIX, RunPlace
from gpuinspect.verify.record import record
from gpuinspect.verify.rows import RowOutcome, RowRunner
from gpuinspect.verify.site import OutOfTimeError, VerifySite
from gpuinspect.verify.targets import ProofTarget, targets
from gpuprobe.checks.verdicts import Proof, skipped

if TYPE_CHECKING:  # the import takes a while
    from gpukube.blocking import BlockingClient

Report = Callable[[ProofTarget, Proof], None]
_NAME_BYTES: Final = 3
_STOPS: Final = (signal.SIGTERM, signal.SIGHUP)
NODES_AT_ONCE: Final = 8
"""Nodes do not disturb each other; the pods of one node do, and come one after the other."""
STOP_SECONDS: Final = 5.0
"""Wait for the threads of a run that is stopped: one may wait minutes for the API server."""


class VerifySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the user set.

    Attributes:
        node, gpu: only this one; all models of all nodes by default.
        namespace: an existing one; empty for one of the run's own.
        rows: names of the rows.
        image: of the pods; empty for that of the device plugin on the node.
        seconds: of the whole run.
        starts: pods of the row ``start``.
        keep: leave the objects until the guard removes them.
        record: write the results where monitoring finds them.
    """

    rows: tuple[str, ...]
    node: str = ""
    gpu: int | None = None
    namespace: str = ""
    image: str = ""
    scheduler: str = ""
    runtime_class: str = ""
    seconds: int = 900
    starts: int = 20
    keep: bool = False
    record: bool = False


class VerifyRun(msgspec.Struct, frozen=True):
    """What a run found.

    Attributes:
        described: what CUDA reported of each GPU, by UUID.
        left: the command that deletes what could not be removed; empty for none.
        kept: the command that deletes what was to be kept; empty for none.
        unrecorded: why results could not be recorded.
    """

    outcomes: tuple[RowOutcome, ...]
    described: Mapping[str, Mapping[str, object]] = msgspec.field(default_factory=dict)
    left: str = ""
    kept: str = ""
    unrecorded: tuple[str, ...] = ()


_Nodes = SimpleQueue[tuple[int, Sequence[ProofTarget]]]
_Results = SimpleQueue[tuple[int, VerifyRun] | BaseException]


class _Stopped(BaseException):
    """SIGTERM or SIGHUP: as after Ctrl-C, what was created is removed first."""


def verify(
    kube: "BlockingClient",
    names: Names,
    wanted: VerifySettings,
    report: Report,
    ended: Callable[[VerifyRun], None],
) -> VerifyRun:
    """Run the rows on every target.

    Args:
        report: called with every row as soon as it is known, from one thread at a time.
        ended: called with what is left of the objects where an error or a signal ended the run.

    Raises:
        InspectError: nothing can be verified, or a right is missing; nothing was created.
        KubeError: the API server cannot be read, or refuses the first objects.
    """
    snapshot = live(kube, COUNTED)
    if unread := unread_health(snapshot):
        raise InspectError(unread)
    found = targets(snapshot, names, node=wanted.node, gpu=wanted.gpu)
    if all(each.refusal for each in found):
        raise InspectError(f"nothing to verify on: {'; '.join(each.refusal for each in found)}")
    place = _place(snapshot, found, wanted)
    recorded = plugin_pods(snapshot).values() if wanted.record else ()
    _check_rights(kube, place, {pod.namespace for pod in recorded})

    site = VerifySite(kube, place, keep=wanted.keep)
    reporting = Lock()

    def on_node(on_it: Sequence[ProofTarget]) -> VerifyRun:
        outcomes: list[RowOutcome] = []
        described: dict[str, Mapping[str, object]] = {}
        for target in on_it:
            read = partial(live_on_node, kube, target.node, COUNTED)
            runner = RowRunner(site, target, names, read, starts=wanted.starts)
            for proof in _rows(runner, wanted.rows):
                with reporting:
                    report(target, proof)
                outcomes.append(RowOutcome(target, proof))
            described[target.uuid] = runner.described
        return VerifyRun(tuple(outcomes), described)

    try:
        with _stopping(site), site:
            site.open()
            runs = _on_all_nodes(site, found, on_node)
    except BaseException:
        site.end()  # a signal may have come between the two contexts
        ended(VerifyRun((), left=site.left_behind, kept=site.kept))
        raise
    outcomes = tuple(outcome for run in runs for outcome in run.outcomes)
    described = {uuid: seen for run in runs for uuid, seen in run.described.items()}
    errors = record(kube, snapshot, names, outcomes) if wanted.record else []
    return VerifyRun(outcomes, described, site.left_behind, site.kept, tuple(errors))


def _on_all_nodes(
    site: VerifySite,
    found: Sequence[ProofTarget],
    on_node: Callable[[Sequence[ProofTarget]], VerifyRun],
) -> list[VerifyRun]:
    """Some nodes at once, each in a thread; an error on one of them ends all.

    The threads are daemons: where the API server does not answer them, they end with the process.
    Each run has an order of its own: where the time is too short, not the same nodes are left out.
    """
    nodes: _Nodes = SimpleQueue()
    groups = [*enumerate(tuple(each) for _, each in groupby(found, attrgetter("node")))]
    shuffle(groups)
    for numbered in groups:
        nodes.put(numbered)
    count, results = nodes.qsize(), _Results()
    work = partial(_verify_nodes, nodes, on_node, results)
    threads = [Thread(target=work, daemon=True) for _ in range(min(count, NODES_AT_ONCE))]
    for each in threads:
        each.start()
    try:
        runs = dict(_run_in(results.get()) for _ in range(count))
    except BaseException:
        site.stop()
        _join(threads, STOP_SECONDS)
        raise
    return [runs[number] for number in range(count)]


def _verify_nodes(
    nodes: _Nodes,
    on_node: Callable[[Sequence[ProofTarget]], VerifyRun],
    results: _Results,
) -> None:
    """One node after the other, until there are no more, or one fails."""
    try:
        for number, group in _taken(nodes):
            results.put((number, on_node(group)))
    except BaseException as error:  # noqa: BLE001 - raised again where the results are read
        results.put(error)


def _taken(nodes: _Nodes) -> Iterator[tuple[int, Sequence[ProofTarget]]]:
    with suppress(Empty):
        while True:
            yield nodes.get_nowait()


def _run_in(result: tuple[int, VerifyRun] | BaseException) -> tuple[int, VerifyRun]:
    if isinstance(result, BaseException):
        raise result
    return result


def _join(threads: Sequence[Thread], seconds: float) -> None:
    """Wait for all threads together."""
    until = time.monotonic() + seconds
    for each in threads:
        each.join(max(until - time.monotonic(), 0.0))


def _rows(runner: RowRunner, wanted: Sequence[str]) -> Iterator[Proof]:
    """All rows of a target; those without free units or time are named as skipped."""
    if runner.target.refusal:
        yield from (skipped(row, runner.target.refusal) for row in wanted)
        return
    done: set[str] = set()
    try:
        for proof in runner.proofs(wanted):
            done.add(proof.row)
            yield proof
    except OutOfTimeError as error:
        yield from (skipped(row, f"{error}: --timeout") for row in wanted if row not in done)


def _place(snapshot: Snapshot, found: Sequence[ProofTarget], wanted: VerifySettings) -> RunPlace:
    node = next(each.node for each in found if not each.refusal)
    run = secrets.token_hex(_NAME_BYTES)
    used = pull_secrets_on(snapshot, node, wanted.namespace) if wanted.namespace else ()
    return RunPlace(
        namespace=wanted.namespace or f"{NAMESPACE_PREFIX}{run}",
        own=not wanted.namespace,
        image=wanted.image or image_on(snapshot, node),
        node=node,
        run=run,
        seconds=wanted.seconds,
        scheduler=wanted.scheduler,
        runtime_class=wanted.runtime_class,
        pull_secrets=used,
    )


def _check_rights(kube: "BlockingClient", place: RunPlace, recorded: Collection[str]) -> None:
    """Raise where a right is missing.

    Args:
        recorded: namespaces of the pods that get the results.
    """
    of_run = [*rights.needed(place.namespace, own=place.own)]
    of_results = chain.from_iterable(map(rights.recording, recorded))
    missing = rights.refused(kube, [*of_run, *of_results])
    if not missing:
        return
    words = ", ".join(str(each) for each in missing)
    fewer = place.own and not set(of_run).isdisjoint(missing)
    other = " (--namespace takes an existing namespace and needs fewer)" if fewer else ""
    raise InspectError(f"your credentials may not: {words}{other}; nothing was created")


@contextmanager
def _stopping(site: VerifySite) -> Iterator[None]:
    """SIGTERM and SIGHUP end the run as Ctrl-C does, so that its objects are removed.

    The removal goes on where one of them comes during it: the run is at its end already.
    """

    def stop(number: int, _frame: FrameType | None) -> None:
        if not site.closing:
            raise _Stopped(signal.Signals(number).name)

    handled = [each for each in _STOPS if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, stop) for each in handled}
    try:
        yield
    except _Stopped as stopped:
        rest = "" if site.left_behind or site.kept else "; what was created is removed"
        raise InspectError(f"stopped by {stopped}{rest}") from None
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
