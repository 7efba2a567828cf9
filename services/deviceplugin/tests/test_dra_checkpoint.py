"""The files of prepared claims, where the process is killed or the disk fails at any step."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fakedra.claims import FakeClaims, cdi_claims, holding, node
from fakedra.disk import Killed, recorded
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from gpucore.node.claims.held import HeldClaims
from gpucore.node.claims.prepare import ClaimError, prepare_claim
from gpucore.node.claims.prepared import PreparedClaim, encode_checkpoint
from gpucore.units import NodeName, PodUid
from gpucore.wire.claim.prepared import AllocatedClaim
from gpucore.wire.claim.resource_claims import DeviceShare
from gpucore.wire.names import CLAIM_DRIVER
from gpucore.wire.pod.spec import Pod
from gpudeviceplugin.dra.checkpoint import ClaimFiles
from gpudeviceplugin.dra.preparing import ClaimPreparer
from gpukube.errors import KubeError, UnreachableError

pytestmark = pytest.mark.slow

Work = Callable[[ClaimFiles], object]


def claim(uid: str = "u-1", gpu: int = 0) -> PreparedClaim:
    """4 GiB of a GPU."""
    name = f"gpu-{gpu}"
    device = DeviceShare("gpu", CLAIM_DRIVER, "n1", name, "share-1", memory=4 << 30)
    return prepare_claim(AllocatedClaim(uid, (device,)), "team", "c", node())


def files_in(root: Path) -> ClaimFiles:
    """A process that has started."""
    files = ClaimFiles(root / "gpu", root / "cdi")
    files.start()
    return files


def prepared(files: ClaimFiles) -> set[str]:
    """UIDs of the prepared claims."""
    return {each.uid for each in files.prepared()}


def test_the_cdi_file_is_complete_before_the_checkpoint_is_written(tmp_path: Path) -> None:
    """Both appear by a rename; no step waits for the disk, see the module's head."""
    files = files_in(tmp_path)
    with recorded() as disk:
        files.prepare(claim())
    assert disk.steps[:5] == [
        ("write", "gpushare.io-claim_u-1.unfinished"),
        ("replace", "gpushare.io-claim_u-1.json"),
        ("write", "u-1.unfinished"),
        ("replace", "u-1.json"),
        ("unlink", "u-1.unreadable"),
    ]


def test_a_checkpoint_that_a_power_failure_emptied_is_prepared_again(tmp_path: Path) -> None:
    """The machine starts without CDI files; kubelet prepares the claims of its pods again."""
    files = files_in(tmp_path)
    files.prepare(claim())
    empty(tmp_path / "cdi")
    (tmp_path / "gpu" / "claims" / "u-1.json").write_bytes(b"")
    files = files_in(tmp_path)
    assert prepared(files) == set()
    assert files.prepare(claim()) == claim()
    assert (tmp_path / "cdi" / "gpushare.io-claim_u-1.json").exists()
    assert prepared(files_in(tmp_path)) == {"u-1"}


def test_of_two_claims_of_one_name_the_newer_is_the_pods_after_a_restart(tmp_path: Path) -> None:
    """The older was deleted and kubelet has yet to unprepare it: its GPU and size are no pod's."""
    files = files_in(tmp_path)
    for age, uid, gpu in ((2, "u-9", 0), (1, "u-1", 1)):
        files.prepare(claim(uid, gpu))
        os.utime(tmp_path / "gpu" / "claims" / f"{uid}.json", (1000 - age, 1000 - age))
    held = HeldClaims()
    for each in files_in(tmp_path).prepared():
        held.put(each)
    pod = Pod(PodUid("p"), "team", "p", NodeName("n1"), claims=("c",))
    first, second = (held.bytes_on(gpu, [pod]) for gpu in node().inventory.gpus[:2])
    assert (first, second) == ({}, {"p": 4 << 30})


def test_unprepare_removes_the_checkpoint_first(tmp_path: Path) -> None:
    """What is left where it is killed is an orphan, which the next start removes."""
    files = files_in(tmp_path)
    files.prepare(claim())
    with recorded() as disk:
        files.unprepare("u-1")
    assert [name for _, name in disk.steps] == [
        "u-1.json",
        "u-1.unreadable",
        "gpushare.io-claim_u-1.json",
    ]


def reallocated(files: ClaimFiles) -> None:
    """The claim has another GPU now."""
    files.prepare(claim(gpu=1))


KILLED: dict[str, tuple[Work | None, Work]] = {
    "prepare": (None, lambda files: files.prepare(claim())),
    "prepare another allocation": (lambda files: files.prepare(claim()), reallocated),
    "prepare again": (lambda files: files.prepare(claim()), lambda files: files.prepare(claim())),
    "unprepare": (lambda files: files.prepare(claim()), lambda files: files.unprepare("u-1")),
    "start": (lambda files: files.prepare(claim()), lambda files: files.start()),
}


def empty(directory: Path) -> None:
    """A reboot: the directory is memory."""
    for path in directory.iterdir():
        path.unlink()


@pytest.mark.parametrize("failure", [Killed, OSError])
@pytest.mark.parametrize("reboot", [False, True], ids=["", "reboot"])
@pytest.mark.parametrize("work", KILLED)
def test_the_next_start_makes_both_agree_wherever_the_work_ends(
    tmp_path: Path, work: str, failure: type[BaseException], *, reboot: bool
) -> None:
    """Killed or failed before each of its steps; kubelet then repeats its call, or unprepares."""
    before, killed = KILLED[work]
    for step in range(20):
        root = tmp_path / str(step)
        files = files_in(root)
        files.prepare(claim("other"))
        if before is not None:
            before(files)
        if reboot and work == "start":
            empty(root / "cdi")
        try:
            with recorded(step, failure):
                killed(files)
        except failure:
            ended = False
        else:
            ended = True
        if reboot:
            empty(root / "cdi")
        files = files_in(root)
        assert cdi_claims(root / "cdi") == prepared(files) >= {"other"}
        assert prepared(files) <= {"other", "u-1"}
        killed(files)
        assert cdi_claims(root / "cdi") == prepared(files) >= {"other"}
        files.unprepare("u-1")
        assert cdi_claims(root / "cdi") == prepared(files) == {"other"}
        if ended:
            return
    pytest.fail("the work has more steps than were tried")


def test_a_failed_prepare_leaves_neither_file(tmp_path: Path) -> None:
    """Kubelet gets the error, so the claim is not prepared."""
    files = files_in(tmp_path)
    for step in range(4):
        with recorded(step, OSError), pytest.raises(OSError):  # noqa: PT011 - any will do
            files.prepare(claim())
        assert cdi_claims(tmp_path / "cdi") == set()
        assert prepared(files) == set()


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version": 2}'], ids=["empty", "half", "newer"])
def test_a_damaged_checkpoint_concerns_its_claim_alone(tmp_path: Path, damage: bytes) -> None:
    """Its containers may run, so its CDI file stays until kubelet prepares or unprepares it."""
    files = files_in(tmp_path)
    files.prepare(claim())
    files.prepare(claim("u-2"))
    (tmp_path / "gpu" / "claims" / "u-1.json").write_bytes(damage)
    for _ in range(2):
        files = files_in(tmp_path)
        assert prepared(files) == {"u-2"}
        assert cdi_claims(tmp_path / "cdi") == {"u-1", "u-2"}
    assert files.prepare(claim(gpu=1)) == claim(gpu=1)
    files = files_in(tmp_path)
    assert prepared(files) == cdi_claims(tmp_path / "cdi") == {"u-1", "u-2"}
    files.unprepare("u-1")
    assert {path.name for path in (tmp_path / "gpu" / "claims").iterdir()} == {"u-2.json"}


def test_what_an_earlier_version_set_aside_is_used_by_a_later_one(tmp_path: Path) -> None:
    """A downgrade and an upgrade; a claim that was prepared anew meanwhile keeps its own."""
    files_in(tmp_path).prepare(claim())
    checkpoint = tmp_path / "gpu" / "claims" / "u-1.json"
    aside = checkpoint.rename(checkpoint.with_suffix(".unreadable"))
    files = files_in(tmp_path)
    assert files.prepared() == [claim()]
    assert not aside.exists()
    checkpoint.rename(aside)
    newer = msgspec.structs.replace(claim(), name="newer")
    checkpoint.write_bytes(encode_checkpoint(newer))
    assert files_in(tmp_path).prepared() == [newer]


def test_a_damaged_checkpoint_is_logged_with_its_claim_and_the_reason(tmp_path: Path) -> None:
    """Once by the start, which sets it aside and names the file; by every read before that."""
    files = files_in(tmp_path)
    files.prepare(claim())
    path = tmp_path / "gpu" / "claims" / "u-1.json"
    path.write_bytes(b"{")
    with capture_logs() as logs:
        assert files.read("u-1") is None
        files_in(tmp_path)
        files_in(tmp_path)
    words = "the checkpoint of a claim is damaged"
    assert [(one["event"], one.get("claim"), one.get("path")) for one in logs] == [
        (words, "u-1", None),
        (words, None, str(path)),
    ]
    assert all("cannot be decoded" in one["why"] for one in logs)


def test_a_changed_cdi_file_is_written_again_and_an_intact_one_is_not(tmp_path: Path) -> None:
    """By each start, as a runtime that reads it then has the devices of the claim."""
    files_in(tmp_path).prepare(claim())
    path = tmp_path / "cdi" / "gpushare.io-claim_u-1.json"
    content = path.read_bytes()
    path.write_bytes(b"{}")
    files_in(tmp_path)
    assert path.read_bytes() == content
    with recorded() as disk:
        files_in(tmp_path)
    assert not [step for step in disk.steps if step[0] == "write"]


def test_a_claim_that_is_prepared_stays_as_it_is(tmp_path: Path) -> None:
    """Its containers may run; only another allocation replaces it."""
    files = files_in(tmp_path)
    files.prepare(claim())
    renamed = msgspec.structs.replace(claim(), name="other")
    assert files.prepare(renamed) == claim()
    assert files.read("u-1") == claim()


def test_cdi_files_of_others_are_left_alone(tmp_path: Path) -> None:
    """The vendor's devices and the device plugin's shares are in the same directory."""
    files_in(tmp_path)
    others = {"nvidia.yaml", "gpushare.io-share_gpu-mem-1.json", "k8s.unfinished"}
    for name in others:
        (tmp_path / "cdi" / name).write_text("{}")
    (tmp_path / "cdi" / "gpushare.io-claim_gone.json").write_text("{}")
    files_in(tmp_path)
    assert {path.name for path in (tmp_path / "cdi").iterdir()} == others


def test_a_uid_that_is_a_path_removes_no_file(tmp_path: Path) -> None:
    """Kubelet's socket is not trusted with names of files."""
    files = files_in(tmp_path)
    outside = [tmp_path / "gpu" / f"x{suffix}" for suffix in (".json", ".unreadable")]
    for path in outside:
        path.write_text("{}")
    files.unprepare("../x")
    assert all(path.exists() for path in outside)


def test_files_that_were_never_finished_are_removed(tmp_path: Path) -> None:
    """A killed process left them; nobody would write over those of a claim that is gone."""
    files_in(tmp_path)
    for left in ("cdi/gpushare.io-claim_gone.unfinished", "gpu/claims/gone.unfinished"):
        (tmp_path / left).write_text("{")
    files_in(tmp_path)
    assert list((tmp_path / "cdi").iterdir()) == []
    assert list((tmp_path / "gpu" / "claims").iterdir()) == []


def test_a_plugin_that_starts_waits_for_the_one_that_prepares(tmp_path: Path) -> None:
    """A rolling update: the CDI file without a checkpoint yet is no orphan."""
    files = files_in(tmp_path)
    starting = threading.Thread(target=files_in, args=(tmp_path,))

    def start_other(what: str, name: str) -> None:
        if (what, name) == ("write", "u-1.unfinished"):
            starting.start()
            starting.join(0.2)  # it ends within this time only where it does not wait

    with recorded() as disk:
        disk.before = start_other
        files.prepare(claim())
    starting.join(60)
    assert cdi_claims(tmp_path / "cdi") == prepared(files) == {"u-1"}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("prepare"), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("unprepare"), st.integers(0, 3), st.just(0)),
        st.tuples(st.sampled_from(["restart", "reboot", "api"]), st.just(0), st.just(0)),
        st.tuples(
            st.sampled_from(["kill prepare", "kill unprepare"]),
            st.integers(0, 3),
            st.integers(0, 6),
        ),
    ),
    max_size=25,
)


class Machine:
    """A node, and what is known to be prepared on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.claims = FakeClaims()
        self.prepared: set[str] = set()
        self.start()

    def start(self) -> None:
        """A new process."""
        self.files = files_in(self.root)
        self.preparer = ClaimPreparer(self.claims, self.files, node, holder=holding())

    async def do(self, what: str, number: int, detail: int) -> None:
        """One step."""
        uid = f"u-{number}"
        if what == "prepare":
            self.claims.add(uid, *range(detail))  # without a GPU: an error
            await self.prepare(uid)
        elif what == "unprepare":
            await self.preparer.unprepare(uid)
            self.prepared.discard(uid)
        elif what == "api":
            down = self.claims.failure is None
            self.claims.failure = UnreachableError("down") if down else None
        elif what == "reboot":
            empty(self.root / "cdi")
            self.start()
        elif what == "restart":
            self.start()
        else:
            self.kill(what, uid, detail)

    async def prepare(self, uid: str) -> None:
        """As kubelet does; an error leaves what was there."""
        known = uid in self.prepared
        try:
            await self.preparer.prepare("team", f"c-{uid}", uid)
        except (ClaimError, KubeError):
            assert (uid in prepared(self.files)) == known
        else:
            self.prepared.add(uid)

    def kill(self, what: str, uid: str, step: int) -> None:
        """The process dies in the middle, and its successor decides what holds."""
        try:
            with recorded(step):
                if what == "kill prepare":
                    self.files.prepare(claim(uid))
                else:
                    self.files.unprepare(uid)
        except Killed:
            pass
        self.start()
        now = prepared(self.files)
        assert now - {uid} == self.prepared - {uid}
        self.prepared = now


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_cdi_files_are_those_of_the_prepared_claims(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    """Property: after every step of any sequence."""

    async def play() -> None:
        machine = Machine(tmp_path_factory.mktemp("node"))
        for step in steps:
            await machine.do(*step)
            assert prepared(machine.files) == machine.prepared, step
            assert cdi_claims(machine.root / "cdi") == machine.prepared, step

    asyncio.run(play())
