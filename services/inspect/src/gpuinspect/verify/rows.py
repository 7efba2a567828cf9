"""The rows of the table on one GPU: which pods run, and which check reads their answers.

Every pod stays within free units, also where the limit that it tries does not hold.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from gpucore.wire.names import MEMORY_LIMIT, Names
from gpucore.wire.quantity import number
from gpuinspect.cluster.snapshots import Snapshot
from gpuinspect.verify.placing import STAY, GpuPods
from gpuinspect.verify.site import PodFailedError, PodLateError, PodRefusedError, VerifySite
from gpuinspect.verify.targets import SHARE_MIB, ProofTarget, device_now, target_now
from gpuinspect.verify.users import waits_for
from gpukube.errors import KubeError
from gpuprobe.checks import (
    burst,
    compute,
    exclusive,
    memory,
    neighbour,
    overhead,
    processes,
    share,
    sharing,
    starts,
)
from gpuprobe.checks.answers import MissingAnswerError, check_gpu, expecting, first, parsed
from gpuprobe.checks.rates import stints
from gpuprobe.checks.share import RequestedShare
from gpuprobe.checks.verdicts import Proof, Step, ended_early, skipped

WATCH_SECONDS: Final = 90.0
BURN_SECONDS: Final = 1.5
BEFORE: Final = 3
"""Reports of the neighbour before the other begins, and after it has ended."""
_EMPTY: Final = "needs a GPU that no other pod holds a part of, so that none is disturbed"

Read = Callable[[], Snapshot]


class RowRunner:
    """The rows of one GPU.

    Args:
        site: of the run.
        target: the GPU.
        read: the node and its pods as they are now.
        starts: number of pods of the row ``start``.
    """

    def __init__(
        self, site: VerifySite, target: ProofTarget, names: Names, read: Read, *, starts: int
    ) -> None:
        self._site, self._names, self._read, self._starts = site, names, read, starts
        self.target = target
        self.described: Mapping[str, Any] = {}
        self._pods = GpuPods(site, target, names, read)

    def proofs(self, wanted: Sequence[str]) -> Iterator[Proof]:
        """The rows in the order of the table; each runs when it is asked for."""
        steps: tuple[tuple[tuple[str, ...], Callable[[], Sequence[Proof]]], ...] = (
            (("share", "accounting", "memory"), self._share),
            (("processes",), self._processes),
            (("neighbour", "health"), self._neighbour),
            (("sharing",), self._sharing),
            (("burst",), self._burst),
            (("compute",), self._compute),
            (("overhead",), self._overhead),
            (("exclusive",), self._exclusive),
            (("start",), self._start),
        )
        for rows, step in steps:
            if asked := [row for row in rows if row in wanted]:
                yield from self._of(asked, step)

    def _of(self, rows: Sequence[str], step: Callable[[], Sequence[Proof]]) -> Iterator[Proof]:
        try:
            self.target = target_now(self._read(), self._names, self.target)
            if why := self.target.refusal:
                found = {row: skipped(row, why) for row in rows}
            else:
                found = {proof.row: proof for proof in step()}
        except (PodFailedError, MissingAnswerError, KubeError) as error:
            found = self._failed(rows, error)
        finally:
            with suppress(PodFailedError, KubeError):  # the end of the run removes what is left
                self._pods.clear()
        yield from (found[row] for row in rows if row in found)

    def _failed(self, rows: Sequence[str], error: Exception) -> dict[str, Proof]:
        """Rows without a measurement: that others end a pod, or MPS lets it wait, is no fault.

        Raises:
            RunStoppedError: the run was stopped, which is no fault either.
        """
        self._site.check_running()
        why = ""
        with suppress(KubeError):
            why = self._pods.disruption()
            if not why and isinstance(error, PodLateError):
                waits = waits_for(self._read(), self._names, self.target)
                why = f"{error}: {waits}" if waits else ""
        if why:
            return {row: skipped(row, why) for row in rows}
        return {row: ended_early(row, str(error)) for row in rows}

    @property
    def _spare(self) -> int:
        return memory.spare_mib(self.target.mode)

    def _asked(self, item: Mapping[str, Any], units: int) -> RequestedShare:
        """The share as the pod's annotations and the node's inventory have it."""
        names, notes = self._names, item["metadata"].get("annotations", {})
        return RequestedShare(
            units=units,
            unit_mib=self.target.unit_mib,
            index=number(notes.get(names.mem_idx, "")),
            uuid=self.target.uuid,
            assigned_units=number(notes.get(names.mem_pod, "")) or 0,
            confirmed=notes.get(names.mem_assigned) == "true",
            mode=self.target.mode,
            prefix=names.prefix,
        )

    def _answers_of(self, name: str) -> list[dict[str, Any]]:
        """What a pod has reported at its end."""
        self._site.ended(name)
        answers = parsed(self._site.log(name))
        check_gpu(answers)
        return answers

    def _only_here(self, steps: Sequence[Step]) -> list[Step]:
        """The steps, which only a container with the GPU of the target does."""
        return [expecting(self.target.uuid), *steps]

    def _share(self) -> Sequence[Proof]:
        units = self.target.share
        allocated = units * self.target.unit_mib
        most = min(int(allocated * memory.BEYOND), self.target.usable_mib)
        inner = memory.steps(allocated, most_mib=most, spare_mib=self._spare)
        name = self._pods.start("share", share.steps(inner), units)
        item = self._pods.confirmed(name)
        answers = self._answers_of(name)
        asked = self._asked(item, units)
        proofs = [share.share_proof(asked, answers), share.accounting_proof(asked, answers)]
        self.described = share.described(answers)
        figures = memory.filled(allocated, self.described, share.first_process(answers)[1:])
        return [*proofs, memory.proof(figures, self.target.mode)]

    def _processes(self) -> Sequence[Proof]:
        most = processes.most_allocated_mib(self.target.free_mib) // self.target.unit_mib
        units = min(self.target.share, most)
        allocated = units * self.target.unit_mib
        if allocated < SHARE_MIB:
            needed = processes.needed_mib(self.target.units(SHARE_MIB) * self.target.unit_mib)
            why = f"needs {needed} MiB free, {self.target.free_mib} are: three processes"
            return [skipped("processes", f"{why} may take as much as one where no limit holds")]
        name = self._pods.start(
            "processes",
            processes.steps(allocated, spare_mib=self._spare),
            units,
            outside=processes.outside_steps(allocated, spare_mib=self._spare),
        )
        figures = processes.figures(allocated, self._answers_of(name))
        return [processes.proof(figures, self.target.mode)]

    def _neighbour(self) -> Sequence[Proof]:
        units = self.target.units(SHARE_MIB)
        if not self.target.empty or self.target.free < 2 * units:
            return [skipped("neighbour", _EMPTY), skipped("health", _EMPTY)]
        work = self._only_here(neighbour.watching(WATCH_SECONDS))
        one = self._pods.start("neighbour", work, units)
        self._reports(one, BEFORE)
        if self._has_others():
            return [skipped("neighbour", _EMPTY), skipped("health", _EMPTY)]
        most = self.target.usable_mib - units * self.target.unit_mib
        work = self._only_here(neighbour.offending(most, spare_mib=self._spare))
        other = self._pods.start("offender", work, units)
        offender = self._answers_of(other)
        so_far = len(stints(parsed(self._site.log(one))))
        self._reports(one, so_far + 1)
        figures = neighbour.figures(parsed(self._site.log(one)), offender)
        device = device_now(self._read(), self._names, self.target)
        healthy = device is not None and device.healthy
        return [
            neighbour.proof(figures, self.target.mode),
            neighbour.health_proof(figures, healthy=healthy),
        ]

    def _has_others(self) -> bool:
        """Another pod came to the GPU beside the one of the row."""
        device = device_now(self._read(), self._names, self.target)
        return device is not None and len(device.holders) > 1

    def _reports(self, name: str, count: int) -> None:
        """Wait for a number of reports, or for the end of the neighbour."""

        def reported() -> bool:
            answers = parsed(self._site.log(name))
            failed = any("error" in answer for answer in answers)
            return failed or len(stints(answers)) >= count

        self._site.wait(reported, f"pod {name} reports its work")
        check_gpu(parsed(self._site.log(name)))

    def _sharing(self) -> Sequence[Proof]:
        units = self.target.units(SHARE_MIB)
        if not self.target.empty or self.target.free < 2 * units:
            return [skipped("sharing", _EMPTY)]
        work = self._only_here(sharing.serving(WATCH_SECONDS))
        one = self._pods.start("sharing", work, units)
        self._reports(one, BEFORE)
        rounds = sharing.rounds_of(parsed(self._site.log(one)))
        work = self._only_here(sharing.serving(sharing.SECONDS, rounds=rounds))
        other = self._answers_of(self._pods.start("sharing", work, units))
        return [sharing.proof(sharing.figures(parsed(self._site.log(one)), other))]

    def _answers(self, name: str, count: int) -> None:
        """Wait for a number of answers."""
        self._site.wait(
            lambda: len(parsed(self._site.log(name))) >= count, f"pod {name} has done its work"
        )

    def _burst(self) -> Sequence[Proof]:
        if "driver" not in self.target.mode:
            why = f"isolation mode {self.target.mode} has no memory limit above the share"
            return [skipped("burst", why)]
        units = self.target.units(SHARE_MIB)
        allocated, limit = (units * self.target.unit_mib * n for n in (1, 2))
        if self.target.free_mib < 3 * allocated:
            why = f"needs {3 * allocated} MiB free, {self.target.free_mib} are"
            return [skipped("burst", why)]
        notes = {MEMORY_LIMIT: str(2 * units)}
        work = burst.steps(limit, most_mib=self.target.usable_mib)
        name = self._pods.start("burst", work, units, annotations=notes)
        return [burst.proof(burst.figures(allocated, limit, self._answers_of(name)))]

    def _compute(self) -> Sequence[Proof]:
        if "mps" not in self.target.mode:
            why = f"isolation mode {self.target.mode} does not limit compute: GPUs share by time"
            return [skipped("compute", why)]
        if not self.target.empty or not self.described:
            return [skipped("compute", _EMPTY if self.described else "needs the row share")]
        processors = self._processors()
        sizing = self._limited(compute.calibrating(processors), compute.PERCENTS[0])
        rounds = int(first(sizing, "calibrate")["rounds"])
        work = compute.burning(processors, rounds, BURN_SECONDS)
        answers = {percent: self._limited(work, percent) for percent in compute.PERCENTS}
        given = {percent: compute.percent_given(each) for percent, each in answers.items()}
        burnt = {percent: each[-1] for percent, each in answers.items()}
        return [compute.proof(compute.figures(burnt), given)]

    def _processors(self) -> int:
        """Multiprocessors of the GPU: CUDA reports to a client of MPS those that it may use."""
        if "mps" not in self.target.mode:
            return int(self.described["multiprocessors"])
        answers = self._limited({"do": "describe"}, compute.PERCENTS[0])
        return int(first(answers, "describe")["multiprocessors"])

    def _limited(self, step: Mapping[str, Any], percent: int) -> list[dict[str, Any]]:
        """The answers of a pod with a share of compute that does one thing and ends."""
        steps = compute.limited_steps(dict(step))
        name = self._pods.start("compute", steps, self.target.units(SHARE_MIB), core=percent)
        answers = self._answers_of(name)
        self._pods.clear()
        if len(answers) < len(steps):
            raise MissingAnswerError(f"the container with {percent} % reported too little")
        return answers

    def _overhead(self) -> Sequence[Proof]:
        if not self.target.empty or not self.described:
            return [skipped("overhead", _EMPTY if self.described else "needs the row share")]
        processors, units = self._processors(), self.target.units(SHARE_MIB)
        core = 100 if "mps" in self.target.mode else 0  # of memory alone, MPS limits compute too
        sizing = self._pods.start("overhead", overhead.calibrating(processors), units, core=core)
        work = overhead.working(processors, self._answers_of(sizing))
        self._pods.clear()
        holder = self._pods.start("overhead", [*work, STAY], units, core=core)
        self._answers(holder, len(work))
        try:
            bare = self._pods.without_share("overhead", work)
        except PodRefusedError as error:
            return [skipped("overhead", f"the pod without a share is refused: {error}")]
        without = self._answers_of(bare)
        if why := overhead.refusal(without):
            return [skipped("overhead", f"a pod without a share cannot do the work: {why}")]
        share_answers = parsed(self._site.log(holder))[: len(work)]
        return [overhead.proof(overhead.figures(share_answers, without))]

    def _exclusive(self) -> Sequence[Proof]:
        if not self.target.whole_offered:
            return [
                skipped("exclusive", "the node offers no exclusive GPUs (label gputopology=true)")
            ]
        if self.target.free_gpus < 2:
            return [skipped("exclusive", "needs two GPUs of the node that no pod holds a part of")]
        name = self._site.create(
            "exclusive", exclusive.steps(), {self._names.gpu: 2}, node=self.target.node
        )
        self._pods.add(name)
        item = self._site.bound(name)
        self._site.ended(name)
        links, words = self._link(item)
        figures = exclusive.figures(links, parsed(self._site.log(name)))
        return [exclusive.proof(figures, link=words)]

    def _link(self, item: Mapping[str, Any]) -> tuple[int, str]:
        """NVLinks and the words for the link of the two GPUs that the pod has."""
        group = item["metadata"].get("annotations", {}).get(self._names.group, "")
        indexes = map(number, group.split(","))
        pair = sorted(index for index in indexes if index is not None)
        unknown = (0, "a link that the inventory does not have")
        return unknown if len(pair) != 2 else self.target.links.get((pair[0], pair[1]), unknown)

    def _start(self) -> Sequence[Proof]:
        times = []
        for _ in range(self._starts):
            times.append(self._pods.seconds_to_start())
            self._pods.clear()
        return [starts.proof(starts.figures(times))]


class RowOutcome(msgspec.Struct, frozen=True):
    """A row with the GPU that it is about."""

    target: ProofTarget
    proof: Proof
