"""Claims one by one: whose they are, what counts as held, and what a failure leaves."""

import asyncio
import threading
from pathlib import Path

import pytest
from fakedra.claims import INVENTORY, FakeClaims, cdi_claims, holding, node
from fakedra.disk import recorded
from moduletime import Clock
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from gpucore.node.claims.prepare import ClaimError
from gpucore.node.claims.prepared import PreparedClaim
from gpucore.node.grant import GrantPolicy
from gpudeviceplugin.dra.checkpoint import ClaimFiles
from gpudeviceplugin.dra.holding import ClaimHolder
from gpudeviceplugin.dra.preparing import RECOUNT_SECONDS, ClaimPreparer
from gpudeviceplugin.state import NodeState
from gpukube.errors import ServerError, UnreachableError
from gpukube.testing.waiting import until

pytestmark = pytest.mark.slow


class ReadOnlyError(OSError):
    """The disk went read-only."""

    def __init__(self) -> None:
        super().__init__(30, "read-only")


class World:
    """An API server with claims, the files of a node, and what the node counts as held.

    Attributes:
        why: the node takes no new claims.
    """

    def __init__(self, root: Path) -> None:
        self.cdi, self.checkpoints = root / "cdi", root / "gpu" / "claims"
        self.claims = FakeClaims()
        self.files = ClaimFiles(root / "gpu", self.cdi)
        self.files.start()
        self.why = ""
        self.enforced: list[str] = []
        self.preparer = self.restarted()

    def restarted(self) -> ClaimPreparer:
        """A new process."""
        self.state = NodeState(GrantPolicy())
        self.state.equip(INVENTORY)
        self.preparer = ClaimPreparer(
            self.claims,
            self.files,
            node,
            holder=ClaimHolder(self.state),
            refusal=lambda: self.why,
            enforce=self._enforce,
        )
        return self.preparer

    async def _enforce(self, claim: PreparedClaim, _pods: object) -> None:
        assert claim.uid in self.state.claims
        self.enforced.append(claim.uid)

    async def prepare(self, uid: str) -> PreparedClaim:
        """As kubelet does it for the claim ``c-<uid>``."""
        return await self.preparer.prepare("team", f"c-{uid}", uid)

    def reboot(self) -> None:
        """The CDI directory is memory."""
        for path in self.cdi.iterdir():
            path.unlink()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A node without prepared claims."""
    return World(tmp_path)


async def test_a_claim_that_was_created_anew_under_its_name_is_not_prepared(world: World) -> None:
    """The pod asked for the claim with the UID that kubelet names; this one is somebody else's."""
    world.claims.add("new", 0)
    world.claims.put("old", world.claims.objects.pop(next(iter(world.claims.objects))))
    with pytest.raises(ClaimError, match=r"^a ResourceClaim of this name exists with another UID$"):
        await world.prepare("old")
    assert cdi_claims(world.cdi) == set()
    assert list(world.checkpoints.iterdir()) == []
    assert not world.state.claims


async def test_a_prepared_claim_counts_though_its_file_cannot_be_written_again(
    world: World,
) -> None:
    """Its containers may run: the memory must not be offered by the other API meanwhile."""
    world.claims.add("a", 0)
    await world.prepare("a")
    world.reboot()
    with recorded(0, OSError), pytest.raises(OSError):  # noqa: PT011 - any will do
        await world.prepare("a")
    assert "a" in world.state.claims
    assert await world.prepare("a")
    assert cdi_claims(world.cdi) == {"a"}


async def test_a_claim_that_could_not_be_prepared_does_not_count(world: World) -> None:
    """No file of it is left, so nothing runs with it."""
    world.claims.add("a", 0)
    with recorded(0, OSError), pytest.raises(OSError):  # noqa: PT011 - any will do
        await world.prepare("a")
    assert "a" not in world.state.claims
    assert cdi_claims(world.cdi) == set()


async def test_kubelet_is_answered_once_no_sweep_removes_files_of_the_claims_pods(
    world: World,
) -> None:
    """The claim counts before, so that no further sweep begins."""
    world.claims.add("a", 0)
    counted = []

    async def stop_sweep() -> None:
        counted.append("a" in world.state.claims)

    world.state.stop_sweep = stop_sweep
    await world.prepare("a")
    assert counted == [True]


async def test_a_claim_counts_before_its_files_exist(world: World) -> None:
    """The node must not change its API between the two."""
    world.claims.add("a", 0)
    counted = []

    def look(_what: str, _name: str) -> None:
        counted.append("a" in world.state.claims)

    with recorded() as disk:
        disk.before = look
        await world.prepare("a")
    assert counted
    assert all(counted)


async def test_a_claim_counts_until_its_files_are_gone(world: World) -> None:
    """A file that cannot be removed may still give a container its GPU."""
    world.claims.add("a", 0)
    await world.prepare("a")
    with recorded(2, OSError), pytest.raises(OSError):  # noqa: PT011 - any will do
        await world.preparer.unprepare("a")
    assert "a" in world.state.claims
    await world.preparer.unprepare("a")
    assert "a" not in world.state.claims
    assert not world.state.claims.names


async def test_the_claims_of_an_earlier_process_count_after_a_restart(world: World) -> None:
    """Before anything is offered, and with the files that a reboot took away."""
    world.claims.add("a", 0)
    await world.prepare("a")
    world.reboot()
    await world.restarted().restore()
    assert world.state.claims.names == ["team/c-a"]
    assert cdi_claims(world.cdi) == {"a"}


async def test_claims_of_another_plugin_count_from_their_files(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling update: kubelet calls either plugin, and both write the same directory."""
    clock = Clock()
    clock.rule(monkeypatch, "gpudeviceplugin.dra.preparing")
    files = ClaimFiles(world.checkpoints.parent, world.cdi)
    other = ClaimPreparer(world.claims, files, node, holder=holding())
    for uid in ("a", "b"):
        world.claims.add(uid, 0)
    await world.prepare("a")
    await other.prepare("team", "c-b", "b")
    await other.unprepare("a")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ClaimFiles, "uids", _refused)
        following = asyncio.create_task(world.preparer.follow())
        await until("tried twice", lambda: len(clock.slept) > 2)
        assert world.state.claims.names == ["team/c-a", "team/c-b"]
    await until("recounted", lambda: world.state.claims.names == ["team/c-b"])
    assert set(clock.slept) == {RECOUNT_SECONDS}
    following.cancel()
    await asyncio.wait({following})


async def test_a_recount_keeps_claims_that_are_being_prepared_and_damaged_ones(
    world: World,
) -> None:
    """The first has no files yet; containers of the second may run."""
    for uid in ("a", "b"):
        world.claims.add(uid, 0)
    await world.prepare("b")
    (world.checkpoints / "b.json").write_text("")
    counted = []

    def look(_what: str, _name: str) -> None:
        counted.append("a" in world.state.claims)

    with recorded() as disk:
        disk.before = look
        await asyncio.gather(world.prepare("a"), world.preparer.recount())
    assert all(counted)
    assert world.state.claims.uids == {"a", "b"}


def _refused(_files: ClaimFiles) -> set[str]:
    raise ReadOnlyError


async def test_a_claim_that_was_deleted_meanwhile_counts_no_longer(world: World) -> None:
    """One failure does not keep the others from being looked at."""
    for uid in ("a", "b"):
        world.claims.add(uid, 0)
        await world.prepare(uid)
        world.claims.remove(uid)
    with recorded(0, ReadOnlyError), capture_logs() as logged:
        await world.preparer.remove_deleted()
    assert world.state.claims.names == ["team/c-a"]
    assert cdi_claims(world.cdi) == {"a"}
    deleted = {"event": "unpreparing a deleted claim", "log_level": "info"}
    failed = {"event": "cannot check a prepared claim", "log_level": "warning", "claim": "a"}
    assert logged == [
        deleted | {"claim": "a"},
        failed | {"why": "[Errno 30] read-only"},
        deleted | {"claim": "b"},
    ]


async def test_a_claim_that_cannot_be_decoded_is_not_taken_for_deleted(world: World) -> None:
    """Its containers may run."""
    world.claims.add("a", 0)
    await world.prepare("a")
    world.claims.put("a", b"<html>")
    with capture_logs() as logged:
        await world.preparer.remove_deleted()
    (line,) = logged
    assert line.pop("why").startswith("no ResourceClaim")
    assert line == {
        "event": "cannot decode a prepared claim",
        "log_level": "warning",
        "claim": "a",
    }
    assert "a" in world.state.claims
    assert cdi_claims(world.cdi) == {"a"}


async def test_a_node_that_takes_no_new_claims_keeps_those_it_has(world: World) -> None:
    """Not one that was allocated anew under the same UID: that one is new here."""
    world.claims.add("a", 0)
    first = await world.prepare("a")
    world.why = "this node offers devices"
    assert await world.prepare("a") == first
    for uid, gpu in (("a", 1), ("b", 0)):
        world.claims.add(uid, gpu)
        with pytest.raises(ClaimError, match="this node offers devices"):
            await world.prepare(uid)
    assert cdi_claims(world.cdi) == {"a"}


async def test_a_claim_that_waits_while_the_node_changes_its_api_is_not_prepared(
    world: World,
) -> None:
    """The device plugin may have allocated the same memory meanwhile."""
    for uid in ("a", "b", "c"):
        world.claims.add(uid, 0)
    await world.prepare("a")
    await world.prepare("c")
    begun, end = threading.Event(), threading.Event()

    def removing(what: str, _name: str) -> None:
        if what == "unlink" and not begun.is_set():
            begun.set()
            end.wait(60)

    with recorded() as disk:
        disk.before = removing
        first = asyncio.create_task(world.preparer.unprepare("a"))
        second = asyncio.create_task(world.preparer.unprepare("c"))
        await until("a file is being removed", begun.is_set)
        calls = [asyncio.create_task(world.prepare(uid)) for uid in ("b", "c")]
        await until("the calls wait", lambda: len(world.claims.requests) == 4)
        world.why = "this node offers devices"
        end.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
    await asyncio.gather(first, second)
    assert [str(each) for each in results] == ["this node offers devices"] * 2
    assert cdi_claims(world.cdi) == set()
    assert not world.state.claims


async def test_what_is_published_follows_the_claims_that_are_held(world: World) -> None:
    """Nothing is published anew where a claim is prepared again."""
    signal = world.state.outlook_changed
    world.claims.add("a", 0)
    for work, changes in ((world.prepare, 1), (world.prepare, 0), (world.preparer.unprepare, 1)):
        before = signal.count
        await work("a")
        assert signal.count == before + changes


async def test_the_number_of_claims_is_a_metric(world: World) -> None:
    """It follows what is prepared and what is not any more."""
    for uid in ("a", "b"):
        world.claims.add(uid, 0)
        await world.prepare(uid)
    assert REGISTRY.get_sample_value("gpushare_plugin_claims") == 2
    await world.preparer.unprepare("a")
    assert REGISTRY.get_sample_value("gpushare_plugin_claims") == 1


async def test_limits_are_set_at_every_preparation(world: World) -> None:
    """A pod that starts again has a new cgroup, and its claim is prepared already."""
    world.claims.add("a", 0)
    for _ in range(2):
        await world.prepare("a")
    assert world.enforced == ["a", "a"]


async def test_without_the_api_server_the_file_of_a_prepared_claim_is_written_again(
    world: World,
) -> None:
    """A reboot emptied the directory, and the control plane is away."""
    world.claims.add("a", 0)
    first = await world.prepare("a")
    world.reboot()
    world.claims.failure = ServerError("GET", status=500, message="etcd")
    with capture_logs() as logged:
        assert await world.prepare("a") == first
    assert cdi_claims(world.cdi) == {"a"}
    (line,) = logged
    assert "etcd" in line.pop("why")
    assert line == {
        "event": "answering from the checkpoint",
        "log_level": "warning",
        "claim": "a",
    }


async def test_without_the_api_server_a_prepared_claim_has_its_limits_set(world: World) -> None:
    """After a reboot the cgroups of its pods are new, whatever the API server answers."""
    world.claims.add("a", 0)
    await world.prepare("a")
    world.enforced.clear()
    world.restarted()  # another plugin has prepared it since: the claim counts from now on
    world.claims.failure = ServerError("GET", status=500, message="etcd")
    await world.prepare("a")
    assert world.enforced == ["a"]


async def test_a_claim_that_is_unprepared_during_the_question_is_not_answered(
    world: World,
) -> None:
    """Its files have gone while the API server kept the caller waiting."""
    world.claims.add("a", 0)
    await world.prepare("a")

    async def gone(_path: str) -> bytes:
        await world.preparer.unprepare("a")
        raise UnreachableError("GET: refused")

    world.claims.get = gone  # type: ignore[method-assign]
    with pytest.raises(UnreachableError):
        await world.prepare("a")
    assert cdi_claims(world.cdi) == set()


async def test_names_lead_to_no_other_object(world: World) -> None:
    """A name with a slash is one part of the path."""
    world.claims.add("a", 0)
    with pytest.raises(Exception, match="404"):
        await world.preparer.prepare("team/resourceclaims/x", "../c-a?b", "a")
    (path,) = world.claims.requests
    assert path.count("/") == "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims/c".count("/")
    assert "?" not in path


async def test_a_claim_without_an_allocation_is_not_prepared(world: World) -> None:
    """The error of what cannot be read is that of the claim."""
    world.claims.put("a", b'{"metadata": {"uid": "a"}, "status": {}}')
    with pytest.raises(ClaimError, match="allocat"):
        await world.prepare("a")


async def test_an_invalid_uid_is_refused_before_anything_is_read(world: World) -> None:
    """It would be the name of a file."""
    with pytest.raises(ClaimError, match=r"^the UID of the claim is not valid$"):
        await world.preparer.prepare("team", "c", "../x")
    assert world.claims.requests == []


@pytest.mark.parametrize("api", ["answers", "is away"])
def test_removing_a_claim_waits_for_the_plugin_that_prepares(world: World, api: str) -> None:
    """A rolling update: the files of one claim are written and removed by two processes."""
    claims, other = world.claims, ClaimFiles(world.checkpoints.parent, world.cdi)
    claims.add("a", 0)
    if api == "is away":
        asyncio.run(world.prepare("a"))
        world.reboot()
        claims.failure = UnreachableError("GET: refused")
    removing = threading.Thread(target=other.unprepare, args=("a",))

    def remove(what: str, name: str) -> None:
        if (what, name) == ("write", "gpushare.io-claim_a.unfinished"):
            removing.start()
            removing.join(0.2)  # it ends within this time only where it does not wait

    with recorded() as disk:
        disk.before = remove
        asyncio.run(world.prepare("a"))
    removing.join(60)
    assert cdi_claims(world.cdi) == set()
    assert list(world.checkpoints.iterdir()) == []
