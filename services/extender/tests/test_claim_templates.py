"""Templates of converted pods: created on demand, bounded, and deleted when no pod needs them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import process_time
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from gpucore.claims.share_template import (
    ShareRequest,
    ShareTemplate,
    encode_contents,
    template_name,
)
from gpucore.units import NodeName
from gpucore.wire.names import CLAIM_TEMPLATE
from gpucore.wire.pod.spec import Pod, decode_pod
from gpuextender import metrics
from gpuextender.claims.templates import (
    ALL,
    API,
    MAX_EXISTING,
    MAX_PER_NAMESPACE,
    SWEEP_SECONDS,
    ClaimTemplates,
)
from gpukube.errors import ConflictError, KubeError, NotFoundError, UnreachableError, failure_of
from gpukube.testing.clock import FakeClock

Key = tuple[str, str]


class TemplateServer:
    """An API server that has claim templates and nothing else."""

    def __init__(self) -> None:
        self.items: dict[Key, Any] = {}
        self.rejecting: dict[str, int] = {}
        self.posts = 0
        self.page = 1000
        self.failures: list[Exception] = []

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        """The templates with our label."""
        assert path == ALL
        assert (params or {})["labelSelector"] == "app.kubernetes.io/managed-by=gpushare-webhook"
        self._fail()
        assert (params or {})["limit"] == "500"
        begin = int((params or {}).get("continue", "0"))
        keys, end = sorted(self.items), begin + self.page
        items = [{"metadata": {"namespace": one, "name": name}} for one, name in keys[begin:end]]
        token = {"continue": str(end)} if end < len(keys) else {}
        return json.dumps({"metadata": token, "items": items}).encode()

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    async def post(self, path: str, body: Any) -> bytes:
        """Create one."""
        self.posts += 1
        self._fail()
        namespace = path.removeprefix(f"{API}/namespaces/").partition("/")[0]
        key = (namespace, body["metadata"]["name"])
        assert body["metadata"]["namespace"] == namespace
        self._reject("POST", namespace)
        if key in self.items:
            raise ConflictError("POST", status=409, message="exists")
        self.items[key] = body
        return b"{}"

    def _reject(self, verb: str, namespace: str) -> None:
        """Reply with the status that :attr:`rejecting` has for the namespace."""
        if namespace in self.rejecting:
            raise failure_of(verb, self.rejecting[namespace], "no", b"", retry_after="")

    async def delete(self, path: str) -> bytes:
        """Delete one."""
        *_, namespace, _kind, name = path.split("/")
        self._reject("DELETE", namespace)
        if (namespace, name) not in self.items:
            raise NotFoundError("DELETE", status=404, message="gone")
        del self.items[namespace, name]
        return b"{}"


def contents(gib: int) -> ShareTemplate:
    """A share of this size."""
    return ShareTemplate((ShareRequest(gib * 1024),))


def name_of(gib: int) -> str:
    """Name of its template."""
    return template_name(contents(gib), "gpushare")


def pod(name: str, text: str, namespace: str = "team", phase: str = "Pending") -> Pod:
    """A pod with an annotation."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}-{name}",
        "annotations": {CLAIM_TEMPLATE: text},
    }
    return decode_pod(json.dumps({"metadata": metadata, "status": {"phase": phase}}).encode())


def sized(name: str, gib: int, namespace: str = "team") -> Pod:
    """A pod that was converted."""
    return pod(name, encode_contents(contents(gib)), namespace)


@pytest.fixture
def server() -> TemplateServer:
    """An empty one."""
    return TemplateServer()


@pytest.fixture
def templates(server: TemplateServer) -> ClaimTemplates:
    """The controller of its templates."""
    return ClaimTemplates(server, "gpushare")  # type: ignore[arg-type]


async def test_a_pod_gets_its_template_once(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """In its own namespace; equal pods share it."""
    templates.on_replace([sized("a", 7), sized("b", 7), sized("c", 7, "other")])
    await templates.create_due()
    await templates.create_due()
    assert set(server.items) == {("team", name_of(7)), ("other", name_of(7))}
    assert server.posts == 2


@pytest.mark.budget
async def test_thousands_of_templates_take_no_time_once_they_exist(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """The event loop also serves reviews: each template is looked up by itself."""
    spaces = [f"team-{number}" for number in range(8000)]
    server.items = {(space, name_of(7)): {} for space in spaces}
    server.page = len(spaces)
    await templates.sweep()
    templates.on_replace(sized("a", 7, space) for space in spaces)
    began = process_time()
    await templates.create_due()
    assert process_time() - began < 0.25
    assert server.posts == 0


async def test_another_replica_may_have_been_first(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """A template that exists is the one that is needed: its name is recorded."""
    server.items["team", name_of(7)] = {}
    templates.on_update(sized("a", 7), b"")
    await templates.create_due()
    await templates.create_due()
    assert server.posts == 1


async def test_a_template_without_a_pod_is_deleted_by_the_second_sweep(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """A pod that comes meanwhile keeps it."""
    for gib in (7, 8):
        templates.on_update(sized(f"p{gib}", gib), b"")
    await templates.create_due()
    for gib in (7, 8):
        templates.on_delete(sized(f"p{gib}", gib))
    await templates.sweep()
    assert len(server.items) == 2
    templates.on_update(sized("again", 8), b"")
    await templates.sweep()
    assert set(server.items) == {("team", name_of(8))}


async def test_a_template_that_somebody_deleted_comes_back(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """The next sweep misses it."""
    templates.on_update(sized("a", 7), b"")
    await templates.create_due()
    server.items.clear()
    await templates.sweep()
    await templates.create_due()
    assert set(server.items) == {("team", name_of(7))}


async def test_a_namespace_has_a_limit_and_others_do_not_notice(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """Attack: a tenant with a thousand sizes; the limit moves on as pods end."""
    pods = [sized(f"p{gib}", gib) for gib in range(1, 1001)]
    templates.on_replace([*pods, sized("a", 7, "other")])
    await templates.create_due()
    mine = [key for key in server.items if key[0] == "team"]
    assert len(mine) == MAX_PER_NAMESPACE
    assert ("other", name_of(7)) in server.items
    for each in pods[:999]:
        templates.on_delete(each)
    await templates.sweep()
    await templates.sweep()
    await templates.create_due()
    assert [key for key in server.items if key[0] == "team"] == [("team", name_of(1000))]


async def test_pods_that_come_and_go_leave_a_bounded_number_of_templates(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """Attack: a tenant deletes each pod and creates another size, until a sweep deletes some."""
    before = counted("limited")
    for gib in range(1, 2 * MAX_EXISTING):
        templates.on_update(sized("a", gib), b"")
        await templates.create_due()
    assert len(server.items) == MAX_EXISTING
    assert counted("limited") > before
    templates.on_update(sized("a", 7, "other"), b"")
    await templates.create_due()
    assert ("other", name_of(7)) in server.items
    templates.on_update(sized("a", 1000), b"")
    for _ in range(2):
        await templates.sweep()
    await templates.create_due()
    assert set(server.items) == {("other", name_of(7)), ("team", name_of(1000))}


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        '{"requests":[{"memoryMiB":1}],"namespace":"kube-system"}',
        '{"requests":[{"memoryMiB":1}],"name":"mine"}',
        '{"requests":[{"memoryMiB":1,"deviceClassName":"admin"}]}',
    ],
)
async def test_an_annotation_that_is_none_of_ours_creates_nothing(
    server: TemplateServer, templates: ClaimTemplates, text: str
) -> None:
    """Attack: a tenant names a namespace, a name or a class."""
    templates.on_update(pod("p", text), b"")
    await templates.create_due()
    assert not server.items


async def test_a_template_is_always_in_the_namespace_of_its_pod(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """And of a fixed shape: no field of the pod but the checked amounts is copied."""
    templates.on_update(sized("p", 7, "tenant"), b"")
    await templates.create_due()
    (key, body), *_ = server.items.items()
    assert key[0] == body["metadata"]["namespace"] == "tenant"
    exactly = body["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert set(exactly) == {"deviceClassName", "capacity"}


async def test_pods_that_ended_need_no_template(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """A Job's pods stay as objects."""
    templates.on_update(pod("p", encode_contents(contents(7)), phase="Succeeded"), b"")
    await templates.create_due()
    assert not server.items


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422])
async def test_a_namespace_that_refuses_is_left_until_the_next_sweep(
    server: TemplateServer, templates: ClaimTemplates, status: int
) -> None:
    """A quota, an admission policy or a namespace that ends must not stop the others."""
    server.rejecting["team"] = status
    templates.on_replace([sized("a", 7), sized("b", 7, "other")])
    await templates.create_due()
    await templates.create_due()
    assert set(server.items) == {("other", name_of(7))}
    assert server.posts == 2
    server.rejecting.clear()
    await templates.sweep()
    await templates.create_due()
    assert ("team", name_of(7)) in server.items


async def test_a_namespace_whose_webhook_fails_does_not_stop_the_others(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """The others get their templates at once; its own is attempted again after a pause."""
    server.rejecting["team"] = 500
    templates.on_replace([sized("a", 7), sized("b", 7, "other")])
    with pytest.raises(KubeError, match="POST: 500 no"):
        await templates.create_due()
    assert set(server.items) == {("other", name_of(7))}
    server.rejecting.clear()
    await templates.create_due()
    assert ("team", name_of(7)) in server.items


@pytest.mark.parametrize("status", [401, 429])
async def test_an_error_of_all_requests_is_not_repeated_for_each_template(
    server: TemplateServer, templates: ClaimTemplates, status: int
) -> None:
    """It is no refusal of the template: after the pause all of them are attempted."""
    server.rejecting = {"other": status, "team": status}
    templates.on_replace([sized("a", 7), sized("b", 7, "other")])
    with pytest.raises(KubeError, match=f"POST: {status} no"):
        await templates.create_due()
    assert server.posts == 1
    server.rejecting.clear()
    await templates.create_due()
    assert len(server.items) == 2


@pytest.mark.parametrize(("status", "raised"), [(403, False), (422, False), (500, True)])
async def test_a_template_that_cannot_be_deleted_does_not_keep_the_others(
    server: TemplateServer, templates: ClaimTemplates, status: int, *, raised: bool
) -> None:
    """A refusal is logged; a failure ends the sweep after its last deletion."""
    server.items = {(namespace, name_of(7)): {} for namespace in ("first", "team", "third")}
    server.rejecting["team"] = status
    await templates.sweep()
    with capture_logs() as logs:
        if raised:
            with pytest.raises(KubeError, match="DELETE: 500 no"):
                await templates.sweep()
        else:
            await templates.sweep()
    assert set(server.items) == {("team", name_of(7))}
    refused = [
        (one["namespace"], one["name"]) for one in logs if one["event"] == "deletion refused"
    ]
    assert refused == ([] if raised else [("team", name_of(7))])


async def test_templates_of_others_are_not_touched(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """Only names of our form are deleted, even where the label is ours."""
    server.items["team", "mine"] = {}
    await templates.sweep()
    await templates.sweep()
    assert set(server.items) == {("team", "mine")}


def counted(outcome: str) -> float:
    """The metric of templates by outcome."""
    return metrics.CLAIM_TEMPLATES.labels(outcome)._value.get()


async def test_a_list_of_pods_replaces_what_was_known(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """A template whose pods are not in the list is needed no more."""
    templates.on_replace([sized("a", 7), sized("b", 8)])
    await templates.create_due()
    templates.on_replace([sized("b", 8)])
    await templates.sweep()
    await templates.sweep()
    assert set(server.items) == {("team", name_of(8))}


@pytest.mark.parametrize("change", ["ended", "annotation gone", "annotation broken", "other size"])
async def test_a_template_is_needed_until_its_last_pod_needs_it_no_more(
    server: TemplateServer, templates: ClaimTemplates, change: str
) -> None:
    """By a change of the pod, as by its deletion."""
    templates.on_replace([sized("a", 7), sized("b", 7)])
    await templates.create_due()
    text = encode_contents(contents(7))
    after = {
        "ended": pod("a", text, phase="Failed"),
        "annotation gone": msgspec.structs.replace(pod("a", text), annotations={}),
        "annotation broken": pod("a", "no json"),
        "other size": sized("a", 8),
    }[change]
    templates.on_update(after, b"")
    for _ in range(2):
        await templates.sweep()
    assert ("team", name_of(7)) in server.items
    templates.on_delete(sized("b", 7))
    for _ in range(2):
        await templates.sweep()
    assert ("team", name_of(7)) not in server.items


async def test_a_deleted_template_is_created_again_for_the_next_pod(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """That it existed is forgotten with it; one that is gone already is none to count."""
    created, deleted = counted("created"), counted("deleted")
    templates.on_update(sized("a", 7), b"")
    await templates.create_due()
    templates.on_delete(sized("a", 7))
    for _ in range(2):
        await templates.sweep()
    assert not server.items
    templates.on_update(sized("b", 7), b"")
    await templates.create_due()
    assert set(server.items) == {("team", name_of(7))}
    assert (counted("created"), counted("deleted")) == (created + 2, deleted + 1)


async def test_a_pod_that_comes_while_its_template_is_deleted_gets_it_again(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """The deletion is on its way to the API server, which still has the template."""
    templates.on_update(sized("a", 7), b"")
    await templates.create_due()
    templates.on_delete(sized("a", 7))
    await templates.sweep()
    delete = server.delete

    async def slowly(path: str) -> bytes:
        templates.on_update(sized("b", 7), b"")
        await templates.create_due()
        return await delete(path)

    server.delete = slowly  # type: ignore[method-assign]
    await templates.sweep()
    await templates.create_due()
    assert set(server.items) == {("team", name_of(7))}


async def test_all_pages_of_the_list_are_read(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """Templates of every page are known, and deleted once no pod needs them."""
    server.page = 2
    pods = [sized(f"p{gib}", gib) for gib in range(1, 8)]
    templates.on_replace(pods)
    await templates.create_due()
    await templates.sweep()
    posts = server.posts
    await templates.create_due()
    assert server.posts == posts
    templates.on_replace([])
    for _ in range(2):
        await templates.sweep()
    assert not server.items


@pytest.mark.parametrize(("sizes", "limited"), [(MAX_PER_NAMESPACE, 0), (33, 1)])
async def test_a_namespace_at_its_limit_is_not_counted_as_limited(
    templates: ClaimTemplates, sizes: int, limited: int
) -> None:
    """One that exceeds it is, at each attempt."""
    before = counted("limited")
    templates.on_replace([sized(f"p{gib}", gib) for gib in range(1, sizes + 1)])
    await templates.create_due()
    assert counted("limited") == before + limited


async def test_a_refusal_is_logged_with_the_template_and_its_reason(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """And a template that was created with its name."""
    server.rejecting["team"] = 403
    templates.on_replace([sized("a", 7), sized("b", 7, "other")])
    with capture_logs() as logs:
        await templates.create_due()
    found = {one["event"]: (one["namespace"], one["name"], one.get("error")) for one in logs}
    assert found == {
        "claim template refused": ("team", name_of(7), "POST: 403 no"),
        "claim template created": ("other", name_of(7), None),
    }


@asynccontextmanager
async def running(templates: ClaimTemplates) -> AsyncIterator[None]:
    """Run beside the test."""
    task = asyncio.create_task(templates.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_templates_are_created_when_pods_come_and_swept_every_five_minutes(
    server: TemplateServer, templates: ClaimTemplates, clock: FakeClock
) -> None:
    """For as long as the process lives; what is known is not created again."""
    async with running(templates):
        await asyncio.sleep(1)
        templates.on_update(sized("a", 7), b"")
        await asyncio.sleep(0.001)
        assert set(server.items) == {("team", name_of(7))}
        templates.on_delete(sized("a", 7))
        await asyncio.sleep(SWEEP_SECONDS)
        assert server.items
        await asyncio.sleep(SWEEP_SECONDS)
        assert not server.items
        assert server.posts == 1
    assert clock.seconds > 2 * SWEEP_SECONDS


async def test_the_limit_lets_the_next_template_in_once_a_pod_ends(
    server: TemplateServer, templates: ClaimTemplates, clock: FakeClock
) -> None:
    """At once, not at the next sweep."""
    begin = clock.seconds
    pods = [sized(f"p{gib}", gib) for gib in range(1, MAX_PER_NAMESPACE + 2)]
    async with running(templates):
        await asyncio.sleep(1)
        templates.on_replace(pods)
        await asyncio.sleep(1)
        assert len(server.items) == MAX_PER_NAMESPACE
        templates.on_delete(pods[0])
        await asyncio.sleep(1)
        assert len(server.items) == MAX_PER_NAMESPACE + 1
    assert clock.seconds - begin < SWEEP_SECONDS


def running_with_claim(name: str, gib: int) -> Pod:
    """A converted pod that has a node and its claim."""
    waits = sized(name, gib)
    return msgspec.structs.replace(waits, node=NodeName("n1"), claims=(f"{name}-gpu",))


async def test_pods_that_run_keep_no_size_from_others(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """Their claims are made, so that the limit counts pods without claims only."""
    sizes = range(1, 2 * MAX_EXISTING)
    for gib in sizes:
        templates.on_update(sized(f"p{gib}", gib), b"")
        await templates.create_due()
        templates.on_update(running_with_claim(f"p{gib}", gib), b"")
        if gib % MAX_PER_NAMESPACE == 0:
            await templates.sweep()
            await templates.sweep()
    templates.on_update(sized("next", 1000), b"")
    await templates.create_due()
    assert ("team", name_of(1000)) in server.items


@pytest.mark.parametrize("missing", ["node", "claim"])
async def test_a_pod_without_a_node_or_without_its_claim_needs_its_template(
    server: TemplateServer, templates: ClaimTemplates, missing: str
) -> None:
    """Kubernetes makes a claim that was deleted again until the pod is scheduled."""
    lacks = {"node": {"node": NodeName("")}, "claim": {"claims": ()}}[missing]
    waits = msgspec.structs.replace(running_with_claim("a", 7), **lacks)
    templates.on_update(waits, b"")
    await templates.create_due()
    await templates.sweep()
    await templates.sweep()
    assert set(server.items) == {("team", name_of(7))}


async def test_failures_are_tried_again_after_growing_pauses(
    server: TemplateServer, templates: ClaimTemplates, clock: FakeClock
) -> None:
    """After a success the next failure pauses as shortly as the first."""
    async with running(templates):
        await asyncio.sleep(1)
        server.failures = [UnreachableError("no route") for _ in range(8)]
        templates.on_update(sized("a", 7), b"")
        await asyncio.sleep(50)
        assert not server.items
        await asyncio.sleep(65)
        assert len(server.items) == 1
        server.failures = [UnreachableError("no route")]
        templates.on_update(sized("b", 8), b"")
        await asyncio.sleep(1)
        assert len(server.items) == 2


async def test_a_sweep_that_fails_is_repeated_with_the_next(
    server: TemplateServer, templates: ClaimTemplates, clock: FakeClock
) -> None:
    """And says so in the log."""
    server.failures = [UnreachableError("no route")]
    server.items["team", name_of(7)] = {}
    begin = clock.seconds
    with capture_logs() as logs:
        async with running(templates):
            await asyncio.sleep(3 * SWEEP_SECONDS)
    assert [one["error"] for one in logs if one["log_level"] == "warning"] == ["no route"]
    assert not server.items
    assert clock.seconds - begin >= 3 * SWEEP_SECONDS


async def test_a_pod_that_comes_during_a_sweep_keeps_its_template(
    server: TemplateServer, templates: ClaimTemplates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the sweep had found that no pod needs it."""
    first, second = sorted((7, 8), key=name_of)
    for gib in (first, second):
        server.items["team", name_of(gib)] = {}
    await templates.sweep()
    delete = server.delete

    async def slow(path: str) -> bytes:
        templates.on_update(sized("new", second), b"")
        return await delete(path)

    monkeypatch.setattr(server, "delete", slow)
    await templates.sweep()
    assert set(server.items) == {("team", name_of(second))}


async def test_a_list_that_is_none_ends_no_sweeps(
    server: TemplateServer,
    templates: ClaimTemplates,
    clock: FakeClock,
) -> None:
    """Such as the page of a proxy: the sweeps after it delete and create as before."""
    get = server.get

    async def no_list(path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        del path, params
        server.get = get  # type: ignore[method-assign]
        return b"<html>"

    server.get = no_list  # type: ignore[method-assign]
    server.items["team", name_of(7)] = {}
    async with running(templates):
        await asyncio.sleep(2.5 * SWEEP_SECONDS)
    assert not server.items
