"""Text of tenants that the API server does not validate, in what operators read on a terminal."""

import json
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from drawncluster import FakeCluster, Gpu
from invoking import Run

from gpucore.sizing.idle_eviction import MeasuredPod
from gpucore.units import GIB
from gpucore.wire.names import DEFAULT_NAMES
from gpucore.wire.pod.controllers import Controller
from gpucore.wire.pod.spec import decode_pod
from gpuinspect.cluster.snapshots import decode
from gpuinspect.idle.outcomes import IdleOutcome, IdlePodOutcome, IdleRun
from gpuinspect.layout.fitted import fitted
from gpuinspect.layout.idle import idle, idle_eviction
from gpuinspect.layout.patches import claim_line
from gpuinspect.queries.claim_sizes import ClaimSize, MeasuredWorkload
from gpuinspect.queries.idle import IdleShare, IdleShares
from gpuinspect.queries.shares import cluster_view
from gpuinspect.terminal.output import align, align_rows, wrapped

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
FORGED = f"a{ESCAPES}\nforged\tline\r\x85\u2028forged"


@pytest.fixture
def hostile(cluster: FakeCluster) -> FakeCluster:
    """Pods whose scheduler, owner and node affinity have such texts."""
    cluster.node("n", gpus=[Gpu(15)], labels={"zone": "a"})
    expression = {"key": "zone", "operator": "In", "values": [FORGED]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    cluster.pod("affinity", 10, phase="Pending", spec={"affinity": affinity})
    cluster.pod("scheduler", 10, phase="Pending", spec={"schedulerName": FORGED})
    texts = {"gpushare/isolation": FORGED, "gpushare/policy": FORGED}
    cluster.pod("annotations", 5, phase="Pending", annotations=texts)
    owner = {"kind": FORGED, "name": FORGED, "uid": "u", "controller": True, "apiVersion": "v1"}
    owned = {"ownerReferences": [owner]}
    return cluster.pod(
        "owned", 5, node="n", index=0, metadata=owned, spec={"schedulerName": FORGED}
    )


@pytest.mark.parametrize("words", ["doctor", "snapshot -"])
def test_no_depth_of_managed_fields_ends_a_command(
    run: Run, cluster: FakeCluster, tmp_path: Path, words: str
) -> None:
    """The API server stores a pod with any depth of managedFields; the commands read it."""
    cluster.node("n", gpus=[Gpu(15)]).pod("p", 5, node="n", index=0, metadata={"x": 0})
    head, tail = cluster.json().split('"x": 0')
    for levels in range(sys.getrecursionlimit() - 120, sys.getrecursionlimit(), 3):
        fields = '{"a":' * levels + "1" + "}" * levels
        path = tmp_path / "file.json"
        path.write_text(f'{head}"managedFields": [{{"fieldsV1": {fields}}}]{tail}')
        outcome = run(*words.split(), f"--snapshot={path}")
        assert "nested" not in outcome.err
        assert outcome.out


def harmless(text: str) -> bool:
    """No terminal obeys any of it, and no line of it is forged."""
    lines = text.split("\n")
    return all(line.isprintable() and not line.startswith("forged") for line in lines)


@pytest.mark.parametrize(
    "command",
    [
        ("explain", "pod", "affinity"),
        ("explain", "pod", "scheduler"),
        ("explain", "pod", "annotations"),
        ("explain", "pod", "owned"),
        ("pending",),
        ("pending", "-o", "wide"),
        ("doctor", "-a"),
        ("defrag",),
        ("usage", "-A"),
    ],
)
def test_no_text_of_a_tenant_reaches_a_terminal_raw(
    run: Run, hostile: FakeCluster, command: tuple[str, ...]
) -> None:
    """Neither escape sequences nor line breaks, in tables, sentences and notes."""
    found = run(*command, on=hostile)
    assert found.out
    assert harmless(found.out)
    assert harmless(found.err)


@pytest.mark.parametrize(
    "command",
    [
        *("inspect", "inspect -o wide", "inspect -d", "gpu -d", "top gpu", "doctor -a"),
        *("top node", "top node -d", "top node -m share", "top node -m share -d"),
        *("usage --by model", "usage --by model -o name"),
    ],
)
def test_no_text_of_a_compromised_node_reaches_a_terminal_raw(
    run: Run, cluster: FakeCluster, command: str
) -> None:
    """Its kubelet writes its address, and its device plugin its model and driver."""
    cluster.node("n", address=FORGED, gpus=[Gpu(15, FORGED), Gpu(15)])
    notes = cluster.items[0]["metadata"]["annotations"]
    notes["gpushare/inventory"] = json.dumps(
        json.loads(notes["gpushare/inventory"]) | {"driver": FORGED}
    )
    found = run(*command.split(), on=cluster)
    assert found.out
    assert harmless(found.out)


def test_the_table_that_fits_a_terminal_has_no_control_characters(cluster: FakeCluster) -> None:
    """As the tables for a pipe."""
    cluster.node("n", address=FORGED, gpus=[Gpu(15, FORGED)])
    view = cluster_view(decode(cluster.json().encode()), DEFAULT_NAMES)
    assert harmless(fitted(view, 200, blocks=True))


@pytest.mark.parametrize("name", ["affinity", "scheduler"])
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_documents_escape_what_a_terminal_obeys(
    run: Run, hostile: FakeCluster, name: str, form: str
) -> None:
    """JSON permits U+009B and marks that change the direction of text; programs read the same."""
    found = run("explain", "pod", name, "-o", form, on=hostile)
    assert harmless(found.out)
    load = json.loads if form == "json" else yaml.safe_load
    assert ESCAPES in str_of(load(found.out))


def str_of(document: object) -> str:
    """All texts of a document."""
    if isinstance(document, dict | list):
        return "".join(map(str_of, document.values() if isinstance(document, dict) else document))
    return str(document)


def test_commands_to_read_before_they_run_show_no_other_order_of_text() -> None:
    """A line of a script reads as the shell reads it, whatever is in the template of a tenant."""
    metadata = {"name": "t", "annotations": {"note": ESCAPES}}
    size = ClaimSize({"metadata": metadata}, {"name": "gpu"})
    line = claim_line(MeasuredWorkload("Deployment", "team", "a"), (), size)
    assert harmless(line)
    assert json.loads(shlex.split(line)[2]) == {"metadata": metadata}


def test_an_owner_forges_no_row_of_idle_pods() -> None:
    """Its kind and its name are not validated."""
    at = datetime(2026, 1, 2, tzinfo=UTC)
    since = "2026-01-01T00:00:00Z"
    share = IdleShare("team", "a", "u", FORGED, FORGED, "n", 5, 0.5, 7200, since)
    text = idle(IdleShares((share,), GIB, 0, 0, ""), at, price=0)
    assert harmless(text)
    assert len(text.splitlines()) == 2
    pod = decode_pod(b'{"metadata":{"namespace":"team","name":"a","uid":"u"}}')
    measured = MeasuredPod(pod, Controller(kind=FORGED, name=FORGED), 1.0, 2.0)
    rows = idle_eviction(IdleRun((IdlePodOutcome(measured, IdleOutcome.WAITS),)), at)
    assert harmless(rows)
    assert len(rows.splitlines()) == 3


def test_no_cell_and_no_sentence_has_control_characters() -> None:
    """A tab in a cell begins no column, and a line break no line; spaces stay as they are."""
    assert align_rows([("a\tb", "c\n d"), ("  e", "f")]) == "a b  c  d\n  e  f\n"
    assert harmless(align(f"{ESCAPES}\tb\n"))
    assert wrapped("  a\n  b", None) == "  a   b\n"
    assert harmless(wrapped(f"{FORGED} " * 20, 60, indent=4))
