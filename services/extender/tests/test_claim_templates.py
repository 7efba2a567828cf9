"""Templates of converted pods: created on demand, bounded, and deleted when no pod needs them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gpucore.claims.share_template import (
    ShareRequest,
    ShareTemplate,
    encode_contents,
    template_name,
)
from gpucore.wire.names import CLAIM_TEMPLATE
from gpucore.wire.pods import Pod, decode_pod
from gpuextender.claims.templates import ALL, API, MAX_PER_NAMESPACE, ClaimTemplates
from gpukube.errors import ConflictError, ForbiddenError, NotFoundError

Key = tuple[str, str]


class TemplateServer:
    """An API server that has claim templates and nothing else."""

    def __init__(self) -> None:
        self.items: dict[Key, Any] = {}
        self.forbidden: set[str] = set()
        self.posts = 0

    async def get(self, path: str, *, params: Mapping[str, str] | None = None) -> bytes:
        """The templates with our label."""
        assert path == ALL
        assert (params or {})["labelSelector"] == "app.kubernetes.io/managed-by=gpushare-webhook"
        metadata = [{"namespace": namespace, "name": name} for namespace, name in self.items]
        return json.dumps({"metadata": {}, "items": [{"metadata": m} for m in metadata]}).encode()

    async def post(self, path: str, body: Any) -> bytes:
        """Create one."""
        self.posts += 1
        namespace = path.removeprefix(f"{API}/namespaces/").partition("/")[0]
        key = (namespace, body["metadata"]["name"])
        assert body["metadata"]["namespace"] == namespace
        if namespace in self.forbidden:
            raise ForbiddenError("POST", status=403, message="no")
        if key in self.items:
            raise ConflictError("POST", status=409, message="exists")
        self.items[key] = body
        return b"{}"

    async def delete(self, path: str) -> bytes:
        """Delete one."""
        *_, namespace, _kind, name = path.split("/")
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


async def test_a_namespace_that_refuses_is_left_until_the_next_sweep(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """A quota or a namespace that ends must not stop the others."""
    server.forbidden.add("team")
    templates.on_replace([sized("a", 7), sized("b", 7, "other")])
    await templates.create_due()
    await templates.create_due()
    assert set(server.items) == {("other", name_of(7))}
    assert server.posts == 2
    server.forbidden.clear()
    await templates.sweep()
    await templates.create_due()
    assert ("team", name_of(7)) in server.items


async def test_templates_of_others_are_not_touched(
    server: TemplateServer, templates: ClaimTemplates
) -> None:
    """Only names of our form are deleted, even where the label is ours."""
    server.items["team", "mine"] = {}
    await templates.sweep()
    await templates.sweep()
    assert set(server.items) == {("team", "mine")}
