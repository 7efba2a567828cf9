"""``/api/v1`` and the ``gpushare`` command answer one question with one document."""

import asyncio
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from oddclusters import manifest_of, odd_cluster, odd_manifest, odd_question
from running import Running, until
from typer.testing import CliRunner

from gpuextender.settings import SOURCE
from gpuinspect.commands.main import app
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

Object = dict[str, Any]
SCHEMA = Path(__file__).parents[2] / "inspect" / "schema" / "gpushare-v1.json"
GIVEN = "given by --policy"
SEEDS = range(8)


async def filled(cluster: FakeApiServer, seed: int) -> tuple[list[Object], list[Object]]:
    """The API server with a random cluster."""
    nodes, pods = odd_cluster(Random(seed))
    for item in nodes:
        await cluster.put("nodes", item)
    for item in pods:
        await cluster.put("pods", item)
    return nodes, pods


async def command(*args: str) -> str:
    """What ``gpushare ARGS -o json`` prints, called in this process as its own tests call it."""
    result = await asyncio.to_thread(CliRunner().invoke, app, [*args, "-o", "json"])
    assert result.stdout, result.output
    return str(result.stdout)


async def process(*args: str) -> str:
    """What the program prints in a process of its own."""
    line = (sys.executable, "-m", "gpuinspect", *args, "-o", "json")
    child = await asyncio.create_subprocess_exec(*line, stdout=-1, stderr=-1)
    out, errors = await child.communicate()
    assert out, errors.decode()
    return out.decode()


def snapshot(cluster: FakeApiServer, folder: Path, seed: int) -> Path:
    """The objects of the API server as a file, in another order."""
    items = cluster.all("nodes") + cluster.all("pods")
    Random(seed).shuffle(items)
    path = folder / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return path


def printed(document: Object | list[Object]) -> str:
    """A document of the extender in the form of the command; the source of policies differs."""
    text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    assert text.count(SOURCE) == 1
    return text.replace(SOURCE, GIVEN)


@pytest.mark.parametrize("seed", SEEDS)
async def test_both_give_the_same_bytes(cluster: FakeApiServer, tmp_path: Path, seed: int) -> None:
    """Explanations of pods that wait and pods that are placed, and what-if, on random clusters."""
    random = Random(seed)
    policy = random.choice(("binpack", "spread", "fragmentation"))
    nodes, pods = await filled(cluster, seed)
    flags = ("--policy", policy, "--snapshot", str(snapshot(cluster, tmp_path, seed)))
    # The snapshot has no extender, from which the command would read the scheduler of new pods.
    settings = {"policy": policy, "webhook_scheduler": ""}
    async with Running(cluster, tmp_path, **settings) as extender:
        await extender.ready()
        pending = [each for each in pods if not each["metadata"]["name"].startswith("cpu")]
        for each in pending[:2] + pending[4:6]:
            where = "{namespace}/{name}".format(**each["metadata"])
            _, text = await extender.get(f"/api/v1/pods/{where}/explain")
            assert printed(json.loads(text)) == await command("explain", "pod", where, *flags)
        question = odd_question(random)
        _, answer = await extender.post("/api/v1/whatif", {"pods": question})
        manifest = tmp_path / "pods.json"
        manifest.write_text(json.dumps(manifest_of(question)))
        assert printed(answer) == await command("whatif", "-f", str(manifest), *flags)
        made = odd_manifest(random)
        _, answer = await extender.post("/api/v1/whatif", {"manifests": [made]})
        manifest.write_text(json.dumps(made))
        assert printed(answer) == await command("whatif", "-f", str(manifest), *flags)
        assert len(nodes) == len(extender.state.ledger.node_objects())


async def test_changes_of_the_cluster_change_the_document(
    cluster: FakeApiServer, tmp_path: Path
) -> None:
    """After changes by watch the extender still answers as the command does on a fresh list."""
    async with Running(cluster, tmp_path) as extender:
        await extender.ready()
        nodes, pods = await filled(cluster, 3)
        for item in pods[5::2]:
            await cluster.delete("pods", item["metadata"]["name"], item["metadata"]["namespace"])
        nodes[0]["spec"]["unschedulable"] = not nodes[0]["spec"]["unschedulable"]
        last = await cluster.put("nodes", nodes[0])
        version = last["metadata"]["resourceVersion"]
        held = extender.state.ledger.node_objects
        await until("the last change", lambda: _has(held(), nodes[0], version))
        gone = [each["metadata"]["uid"] for each in pods[5::2]]
        allocations = extender.state.ledger.allocations
        await until("the deletions", lambda: not any(uid in allocations() for uid in gone))
        flags = ("--policy", "binpack", "--snapshot", str(snapshot(cluster, tmp_path, 0)))
        for each in pods[:4]:
            where = "{namespace}/{name}".format(**each["metadata"])
            _, text = await extender.get(f"/api/v1/pods/{where}/explain")
            assert printed(json.loads(text)) == await process("explain", "pod", where, *flags)


def _has(nodes: Any, item: Object, version: str) -> bool:
    found = nodes.get(item["metadata"]["name"])
    return found is not None and found.resource_version == version


async def test_both_publish_one_schema(extender: Running) -> None:
    """The OpenAPI document has the schemas of the command's documents, to the last field."""
    _, text = await extender.get("/openapi.json")
    published = json.loads(text)["components"]["schemas"]
    written = json.loads(SCHEMA.read_text().replace("#/$defs/", "#/components/schemas/"))["$defs"]
    shared = published.keys() & written.keys()
    assert {"PodExplanation", "WhatIfDoc", "GroupDoc", "RefusalDoc"} <= shared
    for name in shared:
        assert published[name] == written[name], name
