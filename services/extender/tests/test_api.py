"""The read API, the probes and the documents: what people and tools see over HTTP."""

import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from aiohttp import web
from objects import node, placed, pod
from running import WAIT_SECONDS, Running, until

from gpucore.workload.history import FEWEST_PODS
from gpuextender.http import app, views
from gpuextender.http.turns import MOST_QUESTIONS
from gpuextender.scheduling.bind import BindOutcome
from gpuextender.scheduling.messages import HostPriority
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

Object = dict[str, Any]


async def get(extender: Running, path: str) -> tuple[int, Any]:
    """Status and decoded body."""
    code, text = await extender.get(path)
    return code, json.loads(text)


async def two_gpus(cluster: FakeApiServer, extender: Running) -> None:
    """A node of 2 x 15 with 9 and 4 units held."""
    await cluster.put("nodes", node("n", 15, 15, unit="GiB"))
    await extender.knows_node("n")
    for gpu, amount in enumerate((9, 4)):
        await cluster.put("pods", placed(pod(f"held-{gpu}", amount, uid=f"h{gpu}"), "n", gpu))
        await extender.knows_pod(f"h{gpu}")


async def test_errors_of_the_framework_have_the_form_of_the_others(extender: Running) -> None:
    """Wrong parameters, methods and paths: ``{"error": sentence}`` with the reason."""
    for path, code, words in (
        ("/gputopology-scheduler/inspect?detail=maybe", 400, "detail: Input should be a valid"),
        ("/gpushare-scheduler/filter", 405, "GET is not allowed"),
        ("/nothing", 404, "/nothing: Not Found"),
    ):
        status, answer = await get(extender, path)
        assert (status, list(answer)) == (code, ["error"])
        assert words in answer["error"]


async def test_a_wrong_method_is_answered_with_those_that_are_allowed(extender: Running) -> None:
    """In the header Allow, which HTTP requires with 405."""
    async with extender.http.post("/api/v1/nodes") as reply:
        assert (reply.status, reply.headers["Allow"]) == (405, "GET")


async def test_no_route_documents_the_status_422(extender: Running) -> None:
    """Wrong parameters are answered with 400, and so says the OpenAPI document."""
    _, document = await get(extender, "/openapi.json")
    operations = [each for path in document["paths"].values() for each in path.values()]
    assert not [each for each in operations if "422" in each["responses"]]
    one = document["paths"]["/gputopology-scheduler/inspect"]["get"]["responses"]["400"]
    assert one["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/ErrorView"
    }
    assert "ErrorView" in document["components"]["schemas"]


async def test_units_on_an_unknown_gpu_are_not_free(
    cluster: FakeApiServer, extender: Running
) -> None:
    """They are held on one of the node's GPUs, and no other pod gets them."""
    await two_gpus(cluster, extender)
    lost = placed(pod("lost", 5, uid="lost"), "n", 0)
    lost["metadata"]["annotations"] = {}
    await cluster.put("pods", lost)
    await extender.knows_pod("lost")
    _, one = await get(extender, "/api/v1/nodes/n")
    assert (one["pending"], one["free"]) == (5, 12)


async def test_nodes_show_every_gpu_and_who_is_on_it(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Figures with their unit, and pods by name."""
    await two_gpus(cluster, extender)
    code, answer = await get(extender, "/api/v1/nodes")
    [one] = answer["nodes"]
    assert code == 200
    assert (one["name"], one["unit"], one["total"], one["used"], one["free"]) == (
        "n", "GiB", 30, 13, 17,
    )  # fmt: skip
    first = one["gpus"][0]
    assert (first["uuid"], first["free"], first["healthy"]) == ("GPU-n-0", 6, True)
    [holder] = first["pods"]
    assert (holder["name"], holder["units"], holder["state"]) == ("held-0", 9, "confirmed")
    assert await get(extender, "/api/v1/nodes/n") == (200, one)


async def test_a_share_that_has_its_gpu_alone_is_exclusive(
    cluster: FakeApiServer, extender: Running
) -> None:
    """As exclusive GPUs are: no other pod gets the rest."""
    await cluster.put("nodes", node("n", 15, unit="GiB"))
    await extender.knows_node("n")
    alone = pod("alone", 4, uid="alone", labels={"ack.gpushare.placement": "require-whole-device"})
    await cluster.put("pods", placed(alone, "n", 0))
    await extender.knows_pod("alone")
    _, answer = await get(extender, "/api/v1/nodes/n")
    [gpu] = answer["gpus"]
    assert (gpu["free"], gpu["pods"][0]["exclusive"]) == (0, True)


async def test_the_mix_of_usual_pods_is_the_one_in_use(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A guess until enough pods came; then their kinds with their parts, and the same metrics."""
    await two_gpus(cluster, extender)
    guess = {"apiVersion": "gpushare/v1", "kind": "PodMix", "learned": False, "pods": 2}
    assert await get(extender, "/api/v1/mix") == (200, {**guess, "kinds": []})
    for number in range(FEWEST_PODS):
        await cluster.put("pods", pod(f"w{number}", 5))
    await until("a mix", lambda: extender.state.mix.mix is not None)
    code, answer = await get(extender, "/api/v1/mix")
    assert (code, answer["learned"]) == (200, True)
    assert answer["kinds"][0] | {"part": 0} == {"part": 0, "gpus": 1, "memUnits": 5}
    assert sum(kind["part"] for kind in answer["kinds"]) == pytest.approx(1.0, abs=0.01)
    _, metrics = await extender.get("/metrics")
    kinds = len(answer["kinds"])
    assert f"gpushare_extender_mix_kinds {kinds}.0" in metrics


async def test_a_waiting_pod_is_explained_node_by_node(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Every node has the reason, GPU by GPU, or how well."""
    await two_gpus(cluster, extender)
    await cluster.put("nodes", node("big", 40, unit="GiB"))
    await extender.knows_node("big")
    await cluster.put("pods", pod("wants", 12))
    await until("known", lambda: extender.state.find("default", "wants"))
    code, answer = await get(extender, "/api/v1/pods/default/wants/explain")
    assert (code, answer["kind"], answer["state"]) == (200, "PodExplanation", "Fits")
    assert answer["text"] == "1 of 2 nodes with GPUs can take it"
    assert answer["request"]["mem"] == 12
    assert answer["fits"] == ["big"]
    assert [score["node"] for score in answer["scores"]] == ["big"]
    [refusal] = answer["refusals"]
    assert (refusal["node"], refusal["code"]) == ("n", "InsufficientMemory")
    assert [(gpu["free"], gpu["requested"]) for gpu in refusal["gpus"]] == [(6, 12), (11, 12)]


async def test_the_rules_of_the_scheduler_count_too(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A cordoned node, and one whose cpu other pods request, admit no pod, whatever is free."""
    cordoned = node("cordoned", 15, unit="GiB") | {"spec": {"unschedulable": True}}
    for item in (node("busy", 15, unit="GiB"), cordoned):
        await cluster.put("nodes", item)
        await extender.knows_node(item["metadata"]["name"])
    other = pod("other", uid="other")
    other["spec"] |= {"nodeName": "busy"}
    other["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "6"}}
    await cluster.put("pods", other)
    waits = pod("wants", 2)
    waits["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "3"}
    await cluster.put("pods", waits)
    await until("known", lambda: extender.state.find("default", "wants"))
    _, answer = await get(extender, "/api/v1/pods/default/wants/explain")
    codes = {refusal["node"]: refusal["code"] for refusal in answer["refusals"]}
    assert codes == {"busy": "InsufficientResources", "cordoned": "NodeUnschedulable"}
    _, answer = await extender.post("/api/v1/whatif", {"pods": [{"name": "a", "mem": 2}]})
    assert [item["node"] for item in answer["items"]] == ["busy"]


async def test_a_pod_that_the_api_server_does_not_give_is_not_explained(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Its constraints are read on each request; 503 states why they could not be."""
    await cluster.put("pods", pod("wants", 12))
    await until("known", lambda: extender.state.find("default", "wants"))
    cluster.fail_next("get", lambda _: web.Response(status=403, text="forbidden"))
    code, answer = await get(extender, "/api/v1/pods/default/wants/explain")
    assert code == 503
    assert "pod default/wants cannot be explained" in answer["error"]


async def test_a_pod_with_thousands_of_constraints_makes_nobody_wait(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Whoever writes such a pod gets no explanation of it here; the command evaluates them all."""
    large = pod("large", 12)
    large["spec"]["tolerations"] = [{"key": f"k{n}", "operator": "Exists"} for n in range(1001)]
    await cluster.put("pods", large)
    code, answer = await get(extender, "/api/v1/pods/default/large/explain")
    assert code == 503
    assert "evaluated by the command gpushare only" in answer["error"]
    code, answer = await extender.post("/api/v1/whatif", {"manifests": [large]})
    assert code == 400
    assert "evaluated by the command gpushare only" in answer["error"]


async def test_one_question_is_answered_at_a_time(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A question works on a copy of the cluster; a second one waits, so copies do not add up."""
    await two_gpus(cluster, extender)
    await cluster.put("pods", pod("wants", 12))
    held = asyncio.Event()

    async def wait(_: object) -> None:
        await held.wait()

    path = "/api/v1/namespaces/default/pods/wants"
    cluster.fail_next("get", wait)
    first = asyncio.create_task(get(extender, "/api/v1/pods/default/wants/explain"))
    await until("the first question", lambda: cluster.count("GET", path) == 1)
    second = asyncio.create_task(get(extender, "/api/v1/pods/default/wants/explain"))
    assert (await extender.get("/healthz"))[0] == 200
    assert (await extender.filter(pod("p", 2), "n"))["NodeNames"] == ["n"]
    assert cluster.count("GET", path) == 1
    held.set()
    assert (await first) == (await second)
    assert cluster.count("GET", path) == 2


@dataclass
class HeldRead:
    """A question that waits for the API server, until ``ends`` is set."""

    first: asyncio.Task[tuple[int, Any]]
    ends: asyncio.Event


EXPLAIN = "/api/v1/pods/default/wants/explain"


async def held_question(cluster: FakeApiServer, extender: Running) -> HeldRead:
    """Two GPUs, and a question that is being answered."""
    await two_gpus(cluster, extender)
    await cluster.put("pods", pod("wants", 12))
    held = asyncio.Event()

    async def wait(_: object) -> None:
        await held.wait()

    path = "/api/v1/namespaces/default/pods/wants"
    cluster.fail_next("get", wait)
    first = asyncio.create_task(get(extender, EXPLAIN))
    await until("the first question", lambda: cluster.count("GET", path) == 1)
    return HeldRead(first, held)


async def questions(extender: Running, count: int) -> list[asyncio.Task[tuple[int, Any]]]:
    """Questions that were all received: those that are refused have their reply."""
    tasks = [asyncio.create_task(get(extender, EXPLAIN)) for _ in range(count)]
    refused = max(count - MOST_QUESTIONS + 1, 0)
    await until("refusals", lambda: sum(task.done() for task in tasks) >= refused)
    return tasks


async def test_more_than_a_few_waiting_questions_are_refused(
    cluster: FakeApiServer, extender: Running
) -> None:
    """All kinds get 503 with Retry-After while the maximum waits; those before are answered.

    A question is refused before it is read, which may need the API server.
    """
    held = await held_question(cluster, extender)
    asked = await questions(extender, MOST_QUESTIONS + 2)
    question = {"pods": [{"name": "a", "mem": 2}]}
    unread = {"pods": "none"}
    for method, path, body in (
        ("GET", EXPLAIN, None),
        ("POST", "/api/v1/whatif", question),
        ("POST", "/api/v1/whatif", unread),
    ):
        async with extender.http.request(method, path, json=body) as reply:
            assert (reply.status, reply.headers["Retry-After"]) == (503, "5")
            assert "8 questions are waiting" in (await reply.json())["error"]
    held.ends.set()
    codes = [code for code, _ in await asyncio.gather(held.first, *asked)]
    assert (codes.count(200), codes.count(503)) == (MOST_QUESTIONS, 3)
    assert (await extender.post("/api/v1/whatif", question))[0] == 200


@pytest.mark.parametrize(
    ("path", "held"),
    [
        ("/api/v1/nodes", (views, "nodes_view")),
        ("/gpushare-scheduler/inspect", (app, "inspect_all")),
        ("/gputopology-scheduler/inspect", (views.TopologyInspector, "everything")),
    ],
)
async def test_lists_of_nodes_are_made_one_after_the_other(
    cluster: FakeApiServer,
    extender: Running,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    held: tuple[object, str],
) -> None:
    """A few wait for their turn, and those beyond get 503 with Retry-After."""
    await two_gpus(cluster, extender)
    view, ends, begun = getattr(*held), asyncio.Event(), 0

    async def holding(*args: Any, **options: Any) -> Any:
        nonlocal begun
        begun += 1
        await ends.wait()
        return await view(*args, **options)

    monkeypatch.setattr(*held, holding)
    asked = [asyncio.create_task(get(extender, path)) for _ in range(10)]
    await until("refusals", lambda: sum(task.done() for task in asked) == 10 - MOST_QUESTIONS)
    assert begun == 1
    async with extender.http.get(path) as reply:
        assert (reply.status, reply.headers["Retry-After"]) == (503, "5")
    ends.set()
    codes = [code for code, _ in await asyncio.gather(*asked)]
    assert (codes.count(200), codes.count(503)) == (MOST_QUESTIONS, 2)


async def test_a_question_ends_with_its_client(cluster: FakeApiServer, extender: Running) -> None:
    """A client that closes its connection frees its place, whether it waits or is answered."""
    held = await held_question(cluster, extender)
    asked = await questions(extender, MOST_QUESTIONS)
    waiting = [task for task in asked if not task.done()]
    waiting.pop().cancel()
    async with asyncio.timeout(WAIT_SECONDS):
        while (await asyncio.wait(late := await questions(extender, 1), timeout=0.2))[0]:
            pass
    held.first.cancel()
    codes = [code for code, _ in await asyncio.gather(*waiting, *late)]
    assert codes == [200] * (MOST_QUESTIONS - 1)


@pytest.mark.parametrize("name", ["..", "a%3Fwatch=true", "A", "-"])
async def test_no_other_path_of_the_api_server_is_read(extender: Running, name: str) -> None:
    """A name that no pod can have is answered without a request to the API server."""
    code, _ = await extender.get(f"/api/v1/pods/default/{name}/explain")
    assert code == 404


async def test_a_placed_pod_is_explained_by_its_place(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Node and GPU, in a sentence."""
    await two_gpus(cluster, extender)
    code, answer = await get(extender, "/api/v1/pods/default/held-1/explain")
    assert (code, answer["state"], answer["node"]) == (200, "Placed", "n")
    assert answer["text"] == "4 GiB on GPU 1 of node n"


@pytest.mark.parametrize("path", ["nodes/ghost", "pods/default/ghost/explain"])
async def test_what_is_not_there_is_reported(extender: Running, path: str) -> None:
    """404 with a sentence."""
    code, answer = await get(extender, f"/api/v1/{path}")
    assert code == 404
    assert "is not known" in answer["error"]


async def test_whatif_places_in_order_and_changes_nothing(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Earlier pods take room from later ones, on a copy of the books."""
    await two_gpus(cluster, extender)
    question = {"pods": [{"name": "a", "mem": 6, "replicas": 2}, {"name": "b", "mem": 6}]}
    code, answer = await extender.post("/api/v1/whatif", question)
    assert code == 200
    fates = {one["name"]: (one["fits"], one["text"]) for one in answer["items"]}
    assert fates == {
        "a-0": (True, "6 GiB on GPU 0 of node n"),
        "a-1": (True, "6 GiB on GPU 1 of node n"),
        "b": (False, "fits no node"),
    }
    assert extender.state.ledger.node("n").used_units == 13


def assigned(item: Object, node_name: str) -> Object:
    """The pod as its author assigns it to a node."""
    return item | {"spec": item["spec"] | {"nodeName": node_name}}


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (b"{", "truncated"),
        ({"pods": []}, "length >= 1"),
        ({"pods": [{"name": "a"}]}, "requests nothing"),
        ({"pods": [{"name": "a" * 254, "mem": 1, "replicas": 200}]}, "length <= 253"),
        ({"pods": [{"name": "a", "mem": 1, "policy": "best"}]}, "policy must be one of"),
        ({"pods": [{"name": "a", "mem": 1}, {"name": "a", "mem": 1}]}, "names of pods must differ"),
        ({"pods": [{"name": "a", "mem": 1, "gpus": 1}]}, "both exclusive GPUs and shares"),
        ({"pods": [{"name": n, "mem": 1, "replicas": 150} for n in "ab"]}, "too many"),
        (b" " * (128 * 1024 + 1), "bytes are too many"),
        ({"manifests": [assigned(pod("p", 1), "gone")]}, "node gone of its spec.nodeName"),
    ],
)
async def test_a_question_that_makes_no_sense_is_answered_with_400(
    extender: Running, question: object, words: str
) -> None:
    """The sentence states what to change."""
    code, answer = await extender.post("/api/v1/whatif", question)
    assert code == 400
    assert words in answer["error"]


async def test_the_openapi_document_is_whole(extender: Running) -> None:
    """Version 3.1, every reference resolves, and every verb has an example to try."""
    _, document = await get(extender, "/openapi.json")
    assert document["openapi"].startswith("3.1")
    text = json.dumps(document)
    known = document["components"]["schemas"]
    for part in text.split('"$ref": "#/components/schemas/')[1:]:
        assert part.split('"')[0] in known
    for verb in ("filter", "prioritize", "bind", "preempt"):
        post = document["paths"][f"/gpushare-scheduler/{verb}"]["post"]
        assert post["requestBody"]["required"]
        assert post["requestBody"]["content"]["application/json"]["example"]


async def test_the_openapi_document_describes_every_reply(extender: Running) -> None:
    """In words of this project, also where the reply is a list."""
    _, document = await get(extender, "/openapi.json")
    replies = document["paths"]["/gpushare-scheduler/prioritize"]["post"]["responses"]
    assert replies["200"]["description"] == (HostPriority.__doc__ or "").splitlines()[0]
    assert set(document["paths"]["/gpushare-scheduler/bind"]["post"]["responses"]) == {"200", "500"}


@pytest.mark.parametrize(
    "prefix", ["gpushare-scheduler", "gputopology-scheduler", "gpu-scheduler-extender"]
)
async def test_every_prefix_answers_every_verb(
    cluster: FakeApiServer, extender: Running, prefix: str
) -> None:
    """Configurations written for either original keep working."""
    await two_gpus(cluster, extender)
    body = {"Pod": pod("p", 2), "NodeNames": ["n"]}
    assert (await extender.post(f"/{prefix}/filter", body))[1]["NodeNames"] == ["n"]
    for verb in ("prioritize", "sort"):
        _, [score] = await extender.post(f"/{prefix}/{verb}", body)
        assert score["Host"] == "n"
        assert 0 <= score["Score"] <= 10
    assert (await extender.post(f"/{prefix}/preempt", {}))[0] == 200
    assert (await extender.post(f"/{prefix}/bind", {}))[0] == 500
    assert (await get(extender, f"/{prefix}/inspect"))[0] == 200


async def test_each_verb_has_its_own_latency(extender: Running) -> None:
    """Whatever its reply is."""

    async def counted() -> dict[str, float]:
        _, text = await extender.get("/metrics")
        found = re.findall(r'gpushare_extender_verb_seconds_count\{verb="(\w+)"\} (\S+)', text)
        return {verb: float(count) for verb, count in found}

    for verb in ("filter", "prioritize", "bind", "preempt"):
        before = await counted()
        await extender.post(f"/gpushare-scheduler/{verb}", {})
        assert await counted() == before | {verb: before[verb] + 1}


async def test_metrics_tell_latency_refusals_binds_gpus_and_the_watch(
    cluster: FakeApiServer, extender: Running
) -> None:
    """What an operator alerts on is there, with bounded labels."""
    await two_gpus(cluster, extender)
    await extender.filter(pod("p", 40), "n")
    item = await cluster.put("pods", pod("q", 2))
    await extender.bind(item, "n")
    await cluster.put("pods", pod("waits", 14))
    await until("the watch reported it", lambda: extender.state.find("default", "waits"))
    _, text = await extender.get("/metrics")
    for line in (
        'gpushare_extender_verb_seconds_count{verb="filter"}',
        'gpushare_extender_refusals_total{code="TooLarge"}',
        'gpushare_extender_binds_total{outcome="bound"}',
        'gpushare_extender_gpu_units{gpu="0",kind="used",node="n"} 11.0',
        'gpushare_extender_gpu_units{gpu="0",kind="total",node="n"} 15.0',
        'gpushare_extender_claims{state="confirmed"} 2',
        'gpushare_extender_reflector_age_seconds{collection="pods"}',
        "gpushare_extender_ready 1.0",
        "gpushare_extender_overfull_gpus gauge\n",
        "gpushare_extender_waiting_pods 1.0\n",
        "gpushare_extender_waiting_units 14.0\n",
    ):
        assert line in text, line
    assert "held-0" not in text
    assert "_created" not in text


@pytest.mark.parametrize("outcome", get_args(BindOutcome))
async def test_binds_are_counted_from_zero(extender: Running, outcome: str) -> None:
    """Prometheus has no increase of a series that begins with a burst of binds."""
    _, text = await extender.get("/metrics")
    assert f'gpushare_extender_binds_total{{outcome="{outcome}"}}' in text


async def test_nothing_is_decided_before_the_first_list(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """Until nodes and pods are listed it is alive, not ready, and states why to everyone."""
    release = asyncio.Event()

    async def wait(_: object) -> None:
        await release.wait()

    for _ in range(3):
        cluster.fail_next("list", wait)
    async with Running(cluster, tmp_path) as extender:
        assert (await extender.get("/healthz"))[0] == 200
        assert await extender.get("/readyz") == (503, "nodes are not listed yet")
        assert (await extender.filter(pod("p", 2), "n"))["Error"] == "nodes are not listed yet"
        assert await extender.bind(pod("p", 2), "n") == (500, "nodes are not listed yet")
        assert (await extender.get("/api/v1/nodes"))[0] == 503
        release.set()
        await extender.ready()
        assert await extender.get("/readyz") == (200, "ok")


async def test_nothing_stale_is_decided_on_and_readiness_comes_back(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """An API server that is silent for longer than the bound ends readiness, visibly."""
    cluster.bookmarks_every = 0.1
    async with Running(cluster, tmp_path, stale_after=0.5) as extender:
        await extender.ready()
        cluster.refuse = True
        cluster.drop_watches()
        await until("unready", extender.service.health.obstacle)
        code, text = await extender.get("/readyz")
        assert code == 503
        assert "has sent nothing about" in text
        assert "gpushare_extender_ready 0.0" in (await extender.get("/metrics"))[1]
        assert "has sent nothing" in (await extender.filter(pod("p", 2), "n"))["Error"]
        cluster.refuse = False
        async with asyncio.timeout(WAIT_SECONDS):
            while await extender.get("/readyz") != (200, "ok"):
                await extender.ready()
