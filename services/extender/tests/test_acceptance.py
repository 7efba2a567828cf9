"""The extender's acceptance cases (A1 to A17), over HTTP through the real service."""

import json

import pytest
from objects import node, placed, pod
from running import Running, until

from gpuextender.scheduling.messages import ExtenderArgs, decode, names_of
from gpukube.testing.answers import status
from gpukube.testing.apiserver import FakeApiServer

pytestmark = pytest.mark.slow

IDX, DEV, POD = "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_DEV", "ALIYUN_COM_GPU_MEM_POD"
ASSIGNED, ASSUME = "ALIYUN_COM_GPU_MEM_ASSIGNED", "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
ONE_GPU = "Insufficient GPU Memory in one device"


async def fill(
    cluster: FakeApiServer, extender: Running, name: str, *used: int, total: int, unit: str
) -> None:
    """A node whose GPUs hold ``used`` of ``total`` each."""
    await cluster.put("nodes", node(name, *(total for _ in used), unit=unit))
    for gpu, amount in enumerate(used):
        if amount:
            item = placed(pod(f"{name}-{gpu}", amount), name, gpu)
            await cluster.put("pods", item)
            await extender.knows_pod(item["metadata"]["uid"])
    await extender.knows_node(name)


async def bound(cluster: FakeApiServer, extender: Running, node_name: str, *mem: int) -> str:
    """Create a pod, bind it, and answer the index of its GPU."""
    item = await cluster.put("pods", pod(f"pod-{len(cluster.all('pods'))}", *mem))
    code, error = await extender.bind(item, node_name)
    assert (code, error) == (200, "")
    metadata = cluster.find("pods", item["metadata"]["name"], "default")["metadata"]
    index: str = metadata["annotations"][IDX]
    return index


async def test_a1_the_fullest_gpu_that_fits_is_chosen(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A1: free 12207, 8138, 4069, 16276 MiB; a pod of 8138 goes to GPU 1."""
    await fill(cluster, extender, "n", 4069, 8138, 12207, 0, total=16276, unit="MiB")
    assert await bound(cluster, extender, "n", 8138) == "1"


async def test_a2_only_the_node_with_one_large_enough_gpu_passes(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A2: the total of a node is not enough, one GPU must have it."""
    await fill(cluster, extender, "n1", 4069, total=8138, unit="MiB")
    await fill(cluster, extender, "n2", 4069, 4069, total=8138, unit="MiB")
    await fill(cluster, extender, "n3", 0, 8138, total=8138, unit="MiB")
    answer = await extender.filter(pod("p", 8138), "n1", "n2", "n3")
    assert answer["NodeNames"] == ["n3"]
    assert sorted(answer["FailedNodes"]) == ["n1", "n2"]
    assert all(text.startswith(ONE_GPU) for text in answer["FailedNodes"].values())
    assert answer["Nodes"] is None


async def test_a3_three_small_pods_share_the_first_gpu(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A3: three pods of 2 on 2 x 15 all land on GPU 0."""
    await fill(cluster, extender, "n", 0, 0, total=15, unit="GiB")
    assert [await bound(cluster, extender, "n", 2) for _ in range(3)] == ["0", "0", "0"]
    assert extender.state.ledger.node("n").devices[0].used == 6


async def test_a4_an_amount_in_the_wrong_unit_never_passes_and_is_explained(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A4: 16276 on a node in GiB is a mistake that eviction cannot cure."""
    await fill(cluster, extender, "n", 0, total=16, unit="GiB")
    answer = await extender.filter(pod("p", 16276), "n")
    assert answer["NodeNames"] == []
    assert "if you meant MiB, request 16" in answer["FailedNodes"]["n"]
    assert "n" in answer["FailedAndUnresolvableNodes"]


async def test_a5_two_nodes_show_six_and_three_of_fifteen(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A5: three replicas of 3 over two one-GPU nodes, as the README's table has it."""
    for name in ("n1", "n2"):
        await fill(cluster, extender, name, 0, total=15, unit="GiB")
    for name in ("n1", "n2", "n1"):
        await bound(cluster, extender, name, 3)
    _, text = await extender.get("/gpushare-scheduler/inspect")
    used = {one["name"]: (one["usedGPU"], one["totalGPU"]) for one in json.loads(text)["nodes"]}
    assert used == {"n1": (6, 15), "n2": (3, 15)}


async def test_a6_a_sequence_packs_refuses_and_goes_on(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A6: 3, 3, 3, 8 fit, the next 8 does not (6 and 7 free), then 4 takes the tighter GPU."""
    await fill(cluster, extender, "n", 0, 0, total=15, unit="GiB")
    gpus = [await bound(cluster, extender, "n", amount) for amount in (3, 3, 3, 8)]
    assert gpus == ["0", "0", "0", "1"]
    answer = await extender.filter(pod("p", 8), "n")
    assert "GPU 0 has 6 of 15 free, GPU 1 has 7 of 15 free" in answer["FailedNodes"]["n"]
    assert answer["FailedAndUnresolvableNodes"] == {}
    assert await bound(cluster, extender, "n", 4) == "0"


async def test_a7_a_bind_writes_every_annotation_with_the_node_and_nothing_before(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A7: V1 and V2 texts as the original wrote them, in one Binding with the pod's UID."""
    await fill(cluster, extender, "n", 0, 0, total=15, unit="GiB")
    item = await cluster.put("pods", pod("p", 2, 1))
    assert await extender.bind(item, "n") == (200, "")
    [binding] = cluster.bindings
    written = binding["metadata"]["annotations"]
    assert binding["metadata"]["uid"] == item["metadata"]["uid"]
    assert {written[IDX], written[DEV], written[POD], written[ASSIGNED]} == {
        "0",
        "15",
        "3",
        "false",
    }
    assert len(written[ASSUME]) == 19
    assert json.loads(written["scheduler.framework.gpushare.allocation"]) == {
        "0": {"0": 2},
        "1": {"0": 1},
    }
    assert cluster.count("PATCH", "/pods/p") == 0


async def test_a8_another_uid_is_refused_with_both_uids(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A8: the pod was created again under its name since the scheduler looked."""
    await fill(cluster, extender, "n", 0, total=15, unit="GiB")
    await cluster.put("pods", pod("p", 2, uid="new"))
    code, error = await extender.bind(pod("p", 2, uid="old"), "n")
    assert code == 500
    assert error == ("The pod p in ns default's uid is new, and it's not equal with expected old")
    assert cluster.bindings == []


async def test_a9_a_refused_binding_leaves_the_books_as_they_were_and_a_retry_works(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A9: nothing is counted for a bind that the API server refused."""
    await fill(cluster, extender, "n", 0, total=15, unit="GiB")
    item = await cluster.put("pods", pod("p", 2))
    cluster.fail_next("bind", lambda _: status(403, "forbidden by a test"))
    code, error = await extender.bind(item, "n")
    assert code == 500
    assert "forbidden by a test" in error
    assert extender.state.ledger.node("n").used_units == 0
    assert await extender.bind(item, "n") == (200, "")
    assert extender.state.ledger.node("n").used_units == 2


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b'{"NodeNames": 3}', b"\xff\xfe"])
async def test_a10_malformed_input_is_answered_and_never_a_stack_trace(
    extender: Running, body: bytes
) -> None:
    """A10: filter answers 200 with an error, bind 500 with an error."""
    code, answer = await extender.post("/gpushare-scheduler/filter", body)
    assert code == 200
    assert answer["Error"]
    code, answer = await extender.post("/gpushare-scheduler/bind", body)
    assert code == 500
    assert answer["Error"]
    assert "Traceback" not in answer["Error"]


async def test_a11_names_go_before_nodes_and_neither_is_an_error(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A11: both given uses the names; none given, or no pod, gives the original's message."""
    for name in ("n1", "n2"):
        await fill(cluster, extender, name, 0, total=15, unit="GiB")
    item, path = pod("p", 2), "/gpushare-scheduler/filter"
    nodes = {"items": [node("n2", 15)]}
    _, both = await extender.post(path, {"Pod": item, "Nodes": nodes, "NodeNames": ["n1"]})
    assert (both["NodeNames"], both["Nodes"]) == (["n1"], None)
    _, neither = await extender.post(path, {"Pod": item, "Nodes": None, "NodeNames": None})
    assert neither["Error"] == "cannot get node names"
    _, nobody = await extender.post(path, {"Pod": None, "NodeNames": ["n1"]})
    assert nobody["Error"] == "arg or pod is nil"


async def test_a11_full_nodes_are_answered_as_they_came(
    cluster: FakeApiServer, extender: Running
) -> None:
    """Without a node cache the scheduler gets its own objects back, those that fit."""
    await fill(cluster, extender, "n1", 15, total=15, unit="GiB")
    await fill(cluster, extender, "n2", 0, total=15, unit="GiB")
    sent = [node("n1", 15), node("n2", 15) | {"spec": {"unknown": [1, 2]}}]
    body = {"Pod": pod("p", 2), "Nodes": {"items": sent}, "NodeNames": None}
    _, answer = await extender.post("/gpushare-scheduler/filter", body)
    assert answer["Nodes"] == {"items": [sent[1]]}
    assert list(answer["FailedNodes"]) == ["n1"]


async def test_a12_a_node_without_shares_is_skipped_in_the_original_words(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A12: an ordinary node in the list is no error."""
    await cluster.put("nodes", node("plain"))
    await extender.knows_node("plain")
    answer = await extender.filter(pod("p", 2), "plain")
    assert answer["FailedNodes"] == {"plain": "The node plain is not for GPU share, need skip"}
    assert answer["FailedAndUnresolvableNodes"] == answer["FailedNodes"]


async def test_a13_a_finished_pod_gives_its_share_back(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A13: Succeeded frees at once; the object may stay."""
    await fill(cluster, extender, "n", 0, total=15, unit="GiB")
    await bound(cluster, extender, "n", 2)
    [item] = cluster.all("pods")
    await cluster.put("pods", item | {"status": {"phase": "Succeeded"}})
    await until("the share is back", lambda: extender.state.ledger.node("n").used_units == 0)


async def test_a14_gpus_of_the_legacy_config_map_are_not_used(
    cluster: FakeApiServer, legacy: Running
) -> None:
    """A14: unhealthy-gpu-n has 0,2 of 4; only 1 and 3 are given, all again when it is deleted."""
    await fill(cluster, legacy, "n", 0, 0, 0, 0, total=15, unit="GiB")
    metadata = {"name": "unhealthy-gpu-n", "namespace": "kube-system"}
    await cluster.put("configmaps", {"metadata": metadata, "data": {"gpus": "0,2"}})
    await until("withdrawn", lambda: not legacy.state.ledger.node("n").devices[0].healthy)
    assert [await bound(cluster, legacy, "n", 15) for _ in range(2)] == ["1", "3"]
    answer = await legacy.filter(pod("p", 1), "n")
    assert "GPU 0 is unhealthy" in answer["FailedNodes"]["n"]
    await cluster.delete("configmaps", "unhealthy-gpu-n", "kube-system")
    await until("given back", lambda: legacy.state.ledger.node("n").devices[0].healthy)


async def test_config_maps_of_kube_system_are_not_read_unless_requested(
    cluster: FakeApiServer, extender: Running
) -> None:
    """They hold what is not the extender's business, and the legacy list is rarely used."""
    await fill(cluster, extender, "n", 0, total=15, unit="GiB")
    assert not [path for _, path in cluster.requests if path.endswith("/configmaps")]


async def test_the_plugins_own_config_map_does_not_go_before_its_inventory(
    cluster: FakeApiServer, legacy: Running
) -> None:
    """It is for original extenders, and may be later than the inventory with a recovery."""
    await fill(cluster, legacy, "n", 0, 0, total=15, unit="GiB")
    labels = {"app.kubernetes.io/managed-by": "gpushare-device-plugin"}
    for name, more in (("n", {"labels": labels}), ("other", {})):
        metadata = {"name": f"unhealthy-gpu-{name}", "namespace": "kube-system", **more}
        await cluster.put("configmaps", {"metadata": metadata, "data": {"gpus": "0"}})
    await fill(cluster, legacy, "other", 0, total=15, unit="GiB")
    ledger = legacy.state.ledger
    await until("both were read", lambda: not ledger.node("other").devices[0].healthy)
    assert ledger.node("n").devices[0].healthy


async def test_a15_a_restart_shows_the_same(cluster: FakeApiServer, extender: Running) -> None:
    """A15: a second process reads the same books from the API server alone."""
    await fill(cluster, extender, "n", 0, 0, total=15, unit="GiB")
    for amount in (3, 8, 8):
        await bound(cluster, extender, "n", amount)
    before = await extender.get("/gpushare-scheduler/inspect/n")
    async with Running(cluster, extender.folder) as second:
        await second.ready()
        assert await second.get("/gpushare-scheduler/inspect/n") == before


async def test_a16_inspect_names_its_fields_as_the_original_did(
    cluster: FakeApiServer, extender: Running
) -> None:
    """A16: tools parse these names; error is left out when there is none."""
    await fill(cluster, extender, "n", 4, total=15, unit="GiB")
    code, text = await extender.get("/gpushare-scheduler/inspect/n")
    pods = [{"name": "n-0", "namespace": "default", "usedGPU": 4}]
    devs = [{"id": 0, "totalGPU": 15, "usedGPU": 4, "pods": pods}]
    one = {"name": "n", "totalGPU": 15, "usedGPU": 4, "devs": devs}
    assert (code, json.loads(text)) == (200, {"nodes": [one]})
    code, text = await extender.get("/gpushare-scheduler/inspect/none")
    assert (code, json.loads(text)) == (200, {"nodes": None, "error": "node none is not known"})


@pytest.mark.parametrize("change", [str, str.lower, str.upper])
def test_a17_keys_are_read_in_any_case(change: type[str]) -> None:
    """A17: Go does not mind the case of keys, so neither do we."""
    key = {name: change(name) for name in ("Pod", "Nodes", "NodeNames")}
    body = {key["Pod"]: {"a": 1}, key["Nodes"]: None, key["NodeNames"]: ["n"]}
    args = decode(json.dumps(body).encode(), ExtenderArgs)
    assert (json.loads(bytes(args.pod)), names_of(args.node_names)) == ({"a": 1}, ["n"])
