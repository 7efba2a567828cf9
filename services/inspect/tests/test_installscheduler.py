"""The cluster's own scheduler: what is written, and that it comes back as it was."""

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fakeapiserver import FakeApiServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invoking import Run

from gpuinspect.controlplane import cluster as controlplane
from gpuinspect.controlplane import configuration, manifest, plan
from gpuinspect.controlplane.configuration import SchedulerOffer
from gpuinspect.controlplane.files import Files, carry_out
from gpuinspect.controlplane.plan import BACKUP, MANIFEST, SchedulerFiles
from gpuinspect.errors import ControlPlaneError

pytestmark = pytest.mark.slow

EXTENDER = {
    "urlPrefix": "https://10.96.7.7:39999/gpushare-scheduler",
    "bindVerb": "bind",
    "enableHTTPS": True,
    "tlsConfig": {"serverName": "gpushare-extender.gpushare.svc", "keyData": "c2VjcmV0"},
}
OFFER = SchedulerOffer(EXTENDER, "kubescheduler.config.k8s.io/v1")
FLAGS = ("--kubeconfig=/etc/kubernetes/scheduler.conf", "--leader-elect=true", "--port=0")
SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
OTHER = {"urlPrefix": "http://elsewhere:80/scheduler", "filterVerb": "filter"}


def written(
    flags: tuple[str, ...] = FLAGS,
    *,
    indent: int = 0,
    separate: bool = False,
    flow: bool = False,
    comment: str = "",
    image: str = "registry.k8s.io/kube-scheduler:v1.30.4",
) -> str:
    """A manifest as kubeadm (``indent`` 0) or an editor leaves it."""
    pad = " " * indent
    words = ["kube-scheduler", *flags]
    if flow:
        command = f"  - command: [{', '.join(json.dumps(each) for each in words)}]\n"
    elif separate:
        args = "".join(f"    {pad}- {each}\n" for each in flags)
        command = f"  - command:\n    {pad}- kube-scheduler\n    args:\n{args}"
    else:
        command = "  - command:\n" + "".join(f"    {pad}- {each}\n" for each in words)
    return (
        f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: kube-scheduler\nspec:\n{comment}"
        f"  containers:\n{command}    image: {image}\n    name: kube-scheduler\n"
        f"    volumeMounts:\n    {pad}- mountPath: /etc/kubernetes/scheduler.conf\n"
        f"    {pad}  name: kubeconfig\n    {pad}  readOnly: true\n"
        f"  hostNetwork: true\n  volumes:\n  {pad}- hostPath:\n"
        f"    {pad}  path: /etc/kubernetes/scheduler.conf\n    {pad}  type: FileOrCreate\n"
        f"    {pad}name: kubeconfig\nstatus: {{}}\n"
    )


@st.composite
def manifests(draw: st.DrawFn) -> str:
    """Manifests of many shapes, some with a configuration already."""
    flags = draw(st.permutations(FLAGS))
    config = draw(st.sampled_from([(), ("--config=/etc/mine.yaml",), ("--config", "/etc/m.yaml")]))
    return written(
        (*flags[:1], *config, *flags[1:]),
        indent=draw(st.sampled_from([0, 2])),
        separate=draw(st.booleans()),
        flow=draw(st.booleans()),
        comment=draw(st.sampled_from(["", "  # kept by the night shift\n"])),
    )


@SETTINGS
@given(manifests())
def test_any_shape_gets_one_config_flag_and_one_mount_and_nothing_else_changes(text: str) -> None:
    """All but the flag, the mount and the volume is the same object, and comments stay."""
    path = f"{manifest.FOLDER}/scheduler-1.yaml"
    edited = manifest.configured(text, path)
    assert manifest.read(edited).flags == manifest.read(text).flags | {"config": path}
    before, after = yaml.safe_load(text)["spec"], yaml.safe_load(edited)["spec"]
    assert after["volumes"][1:] == before["volumes"]
    assert after["volumes"][0]["hostPath"] == {"path": manifest.FOLDER, "type": "Directory"}
    inner, outer = (spec["containers"][0] for spec in (before, after))
    assert outer["volumeMounts"][1:] == inner["volumeMounts"]
    assert outer["volumeMounts"][0]["readOnly"] is True
    words = {"command", "args", "volumeMounts"}
    assert {k: v for k, v in outer.items() if k not in words} == {
        k: v for k, v in inner.items() if k not in words
    }
    assert ("night shift" in edited) == ("night shift" in text)


def test_the_edit_is_small() -> None:
    """Only lines of ours differ: comments, order, quotes and indentation stay as they were."""
    text = written((*FLAGS[:1], "--config=/etc/mine.yaml", *FLAGS[1:])).replace(
        "  hostNetwork: true\n",
        "  # for the profiler\n  hostNetwork: true # as the node\n"
        "  priority: 2000001000\n  hostname: 'quoted'\n",
    )
    edited = manifest.configured(text, f"{manifest.FOLDER}/scheduler-1.yaml")
    before, after = Counter(text.splitlines()), Counter(edited.splitlines())
    assert before - after == Counter(["    - --config=/etc/mine.yaml"])
    assert after - before == Counter(
        [
            "    - --config=/etc/kubernetes/gpushare/scheduler-1.yaml",
            *("    - mountPath: /etc/kubernetes/gpushare", "      name: gpushare"),
            *("      readOnly: true", "  - hostPath:", "      path: /etc/kubernetes/gpushare"),
            *("      type: Directory", "    name: gpushare"),
        ]
    )


@pytest.mark.parametrize("scalar", ["0644", "on", "1e3", "2026-01-02", "~", "0x1F", "1:30"])
def test_plain_scalars_mean_to_kubelet_what_they_meant(scalar: str) -> None:
    """The two versions of YAML read some differently; none is written in another way."""
    text = written().replace("  hostNetwork: true\n", f"  odd: {scalar}\n")
    edited = manifest.configured(text, f"{manifest.FOLDER}/scheduler-1.yaml")
    assert yaml.safe_load(edited)["spec"]["odd"] == yaml.safe_load(text)["spec"]["odd"]


@settings(SETTINGS, max_examples=30)
@given(manifests())
def test_installing_twice_is_nothing_and_uninstalling_gives_the_same_bytes(text: str) -> None:
    """A second install has no change to make; the way back ends where it began."""
    first = SchedulerFiles(
        manifest=text, config=yaml.safe_dump({"kind": "KubeSchedulerConfiguration"})
    )
    made = {each.path: each.after for each in plan.install(first, OFFER).changes}
    installed = SchedulerFiles(
        manifest=str(made[MANIFEST]),
        original=made[BACKUP],
        config=first.config,
        installed=made[manifest.read(str(made[MANIFEST])).ours],
    )
    assert plan.install(installed, OFFER).changes == ()
    (back,) = plan.uninstall(installed).changes
    assert (back.path, back.after) == (MANIFEST, text)


def test_flags_that_a_configuration_overrules_are_carried_over() -> None:
    """Credentials and the election stay as kubeadm set them; the version is the image's."""
    flags = (*FLAGS[:1], "--leader-elect=false", "--kube-api-qps=80")
    pod = manifest.read(written(flags, image="k8s.gcr.io/kube-scheduler:v1.20.2"))
    config = yaml.safe_load(configuration.render(None, pod.flags, pod.image, OFFER))
    assert config["apiVersion"] == "kubescheduler.config.k8s.io/v1beta1"
    assert config["clientConnection"] == {
        "kubeconfig": "/etc/kubernetes/scheduler.conf",
        "qps": 80.0,
    }
    assert config["leaderElection"] == {"leaderElect": False}
    assert config["extenders"] == [EXTENDER]
    assert not {"enableProfiling", "enableContentionProfiling"} & set(config)


def test_profiling_that_was_switched_off_stays_off() -> None:
    """As the CIS benchmark requires; kube-scheduler's default is on."""
    pod = manifest.read(written((*FLAGS, "--profiling=false", "--contention-profiling=false")))
    config = yaml.safe_load(configuration.render(None, pod.flags, pod.image, OFFER))
    assert config["enableProfiling"] is False
    assert config["enableContentionProfiling"] is False


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("a/kube-scheduler:v1.19.0", "v1beta1"),
        ("a/kube-scheduler:v1.22.1", "v1beta2"),
        ("a/kube-scheduler:v1.24.9", "v1beta3"),
        ("a:5000/kube-scheduler:v1.25.0-eks-1", "v1"),
        ("a/kube-scheduler:latest", "v1"),
    ],
)
def test_version_follows_the_tag_and_else_the_charts_word(image: str, version: str) -> None:
    """The scheduler gets a configuration that it reads, whatever the API server's version is."""
    text = configuration.render(None, {}, image, OFFER)
    assert yaml.safe_load(text)["apiVersion"] == f"kubescheduler.config.k8s.io/{version}"


def test_a_present_configuration_keeps_its_settings() -> None:
    """Profiles and other extenders stay; an entry of ours is replaced and not added again."""
    old = {"urlPrefix": "http://127.0.0.1:32766/gpushare-scheduler", "bindVerb": "bind"}
    present = {
        "apiVersion": "kubescheduler.config.k8s.io/v1beta2",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "mine"}],
        "extenders": [OTHER, old],
    }
    made = yaml.safe_load(configuration.render(yaml.safe_dump(present), {}, "", OFFER))
    assert made == present | {"extenders": [OTHER, EXTENDER]}


def test_a_second_extender_that_binds_is_refused() -> None:
    """kube-scheduler does not start with two, so the command refuses."""
    present = {"kind": "KubeSchedulerConfiguration", "extenders": [OTHER | {"bindVerb": "bind"}]}
    with pytest.raises(ControlPlaneError, match="only one extender may"):
        configuration.render(yaml.safe_dump(present), {}, "", OFFER)


def test_the_originals_policy_goes_and_anybody_elses_is_refused() -> None:
    """A policy overrules a configuration, so its flag goes; what is not ours must not be lost."""
    text = written((*FLAGS, "--policy-config-file=/etc/kubernetes/policy.json"))
    ours = {"urlPrefix": "http://127.0.0.1:32766/gpushare-scheduler", "bindVerb": "bind"}
    policy = json.dumps({"kind": "Policy", "apiVersion": "v1", "extenders": [ours]})
    made = plan.install(SchedulerFiles(manifest=text, policy=policy), OFFER).changes[-1].after
    assert manifest.POLICY not in manifest.read(str(made)).flags
    for other in ({"extenders": [OTHER]}, {"extenders": [ours], "priorities": []}):
        with pytest.raises(ControlPlaneError, match="policy with more than"):
            plan.install(SchedulerFiles(manifest=text, policy=json.dumps(other)), OFFER)


@pytest.mark.parametrize("text", ["", "a: [", "kind: Pod", "spec: {containers: [{name: etcd}]}"])
def test_what_is_no_scheduler_is_refused(text: str) -> None:
    """Another file, or half of one, is never edited."""
    with pytest.raises(ControlPlaneError, match="not a pod that runs kube-scheduler"):
        manifest.read(text)


def test_a_manifest_that_was_edited_since_is_left_alone() -> None:
    """Neither command throws away what a person did after the install."""
    text = written()
    made = {
        each.path: each.after for each in plan.install(SchedulerFiles(manifest=text), OFFER).changes
    }
    edited = SchedulerFiles(manifest=f"{made[MANIFEST]}# by hand\n", original=made[BACKUP])
    for act in (plan.uninstall, lambda found: plan.install(found, OFFER)):
        with pytest.raises(ControlPlaneError, match="was changed after"):
            act(edited)


def test_private_keys_are_not_shown() -> None:
    """The diff ends up in terminals and tickets."""
    shown = plan.install(SchedulerFiles(manifest=written()), OFFER).diff()
    assert "c2VjcmV0" not in shown
    assert "(a private key)" in shown
    assert "+    - --config=/etc/kubernetes/gpushare/scheduler-" in shown


class FakeNode:
    """A control-plane node: its files, and the API server's word on its scheduler."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.text = written()
        self._path(MANIFEST).parent.mkdir(parents=True)
        self._path(MANIFEST).write_text(self.text)
        self._path("/etc/hostname").write_text("Master-0\n")

    @property
    def manifest(self) -> str:
        """As kubelet sees it."""
        return self._path(MANIFEST).read_text()

    def ours(self) -> list[str]:
        """Names in our folder."""
        folder = self._path(manifest.FOLDER)
        return sorted(each.name for each in folder.iterdir()) if folder.exists() else []

    def _path(self, path: str) -> Path:
        return self.root / path.lstrip("/")


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    """A node as kubeadm leaves it."""
    return FakeNode(tmp_path / "root")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod runs steadily after a moment; the real seconds are tested with a clock of its own."""
    monkeypatch.setattr(controlplane, "STEADY_SECONDS", 0.1)
    monkeypatch.setattr(controlplane, "_POLL_SECONDS", 0.02)


def accept(_: str) -> None:
    """A scheduler that runs whatever it is given."""


def test_files_come_and_go(node: FakeNode) -> None:
    """Install lays out configuration and copy, private to root; uninstall leaves no trace."""
    files = Files(node.root)
    carry_out(plan.install(files.found(), OFFER), files, accept, before="")
    pod = manifest.read(node.manifest)
    assert node.ours() == ["kube-scheduler.yaml", pod.ours.rpartition("/")[2]]
    assert (node.root / pod.ours.lstrip("/")).stat().st_mode & 0o777 == 0o600
    carry_out(plan.uninstall(files.found()), files, accept, before=pod.ours)
    assert (node.manifest, node.ours()) == (node.text, [])
    assert [each.name for each in (node.root / MANIFEST[1:]).parent.iterdir()] == [
        "kube-scheduler.yaml"
    ]


def test_another_offer_replaces_the_configuration_and_keeps_the_copy(node: FakeNode) -> None:
    """After an upgrade of the chart the old configuration goes, the original manifest stays."""
    files = Files(node.root)
    carry_out(plan.install(files.found(), OFFER), files, accept, before="")
    first = node.ours()
    newer = SchedulerOffer(EXTENDER | {"httpTimeout": "9s"}, OFFER.api_version)
    carry_out(plan.install(files.found(), newer), files, accept, before="")
    assert len(node.ours()) == 2
    assert node.ours() != first
    carry_out(plan.uninstall(files.found()), files, accept, before="")
    assert node.manifest == node.text


@pytest.mark.parametrize("error", [ControlPlaneError("it does not run"), KeyboardInterrupt()])
def test_a_scheduler_that_does_not_start_gets_its_old_manifest_back(
    node: FakeNode, error: BaseException
) -> None:
    """Failure and interruption both end with the files as they were, and it is waited for again."""
    waited: list[str] = []

    def refuse(config: str) -> None:
        waited.append(config)
        if config:
            raise error

    files = Files(node.root)
    with pytest.raises(type(error)):
        carry_out(plan.install(files.found(), OFFER), files, refuse, before="")
    assert (node.manifest, node.ours()) == (node.text, [])
    assert waited[1:] == [""]


def interrupted(node: FakeNode, number: signal.Signals, first: str) -> tuple[int, str]:
    """Exit status and waits of a program that gets a signal at the begin of each wait.

    Args:
        node: whose files are changed.
        number: the signal.
        first: a statement of the program before the install.

    A wait that ends is printed: True for the new configuration.
    """
    program = (
        "import os, signal, sys; from pathlib import Path;"
        "from gpuinspect.controlplane import plan;"
        "from gpuinspect.controlplane.configuration import SchedulerOffer;"
        "from gpuinspect.controlplane.files import Files, carry_out;"
        "files, number = Files(Path(sys.argv[1])), int(sys.argv[2]);"
        "wait = lambda config: os.kill(os.getpid(), number) or print(bool(config));"
        f"{first};"
        "carry_out(plan.install(files.found(), SchedulerOffer({}, 'v1')), files, wait, before='')"
    )
    command = (sys.executable, "-c", program, str(node.root), str(int(number)))
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_command_gets_the_old_manifest_back(
    node: FakeNode, number: signal.Signals
) -> None:
    """Also after a lost SSH connection; a second signal does not end the wait for the old one."""
    assert interrupted(node, number, "pass") == (128 + number, "False\n")
    assert (node.manifest, node.ours()) == (node.text, [])


def test_a_hangup_that_nohup_ignores_ends_nothing(node: FakeNode) -> None:
    """The command goes on without its terminal, as was asked for."""
    ended = interrupted(node, signal.SIGHUP, "signal.signal(number, signal.SIG_IGN)")
    assert ended == (0, "True\n")
    assert manifest.read(node.manifest).ours


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    """What the chart leaves in its namespace."""
    name = "gpushare-extender"
    tls = {"serverName": f"{name}.gpushare.svc", "keyFile": "/etc/kubernetes/tls.key"}
    prefix = f"https://{name}.gpushare.svc:39999/gpushare-scheduler"
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
        "extenders": [{"urlPrefix": prefix, "tlsConfig": tls}],
    }
    data = {"config.yaml": yaml.safe_dump(config), "credentials": "pair"}
    base = "/api/v1/namespaces/gpushare"
    lists: dict[str, list[dict[str, Any]]] = {
        f"{base}/configmaps": [
            {"metadata": {"name": f"{name}-mix"}},
            {"metadata": {"name": f"{name}-config"}, "data": data},
            {"metadata": {"name": f"{name}-groups"}, "data": {"sets.json": "[]"}},
        ],
    }
    fake = FakeApiServer(lists)
    pair = {"ca.crt": "Y2E=", "tls.crt": "Y3J0", "tls.key": "a2V5"}
    fake.objects[f"{base}/services/{name}"] = {"spec": {"clusterIP": "10.96.7.7"}}
    fake.objects[f"{base}/secrets/pair"] = {"data": pair}
    with fake.serving():
        yield fake


def test_the_dry_run_shows_all_and_changes_nothing(
    run: Run, node: FakeNode, server: FakeApiServer, tmp_path: Path
) -> None:
    """Without --apply the address, the authority and the flag are shown, and that is all."""
    access = ("--root", str(node.root), "--kubeconfig", str(server.kubeconfig(tmp_path)))
    outcome = run("install-scheduler", *access)
    assert outcome.code == 0, outcome.err
    assert "urlPrefix: https://10.96.7.7:39999/gpushare-scheduler" in outcome.out
    assert "serverName: gpushare-extender.gpushare.svc" in outcome.out
    assert "caData: Y2E=" in outcome.out
    assert "keyFile" not in outcome.out
    assert "a2V5" not in outcome.out
    assert "nothing was changed" in outcome.err
    assert (node.manifest, node.ours()) == (node.text, [])


def test_an_extender_without_tls_is_called_as_it_is(
    run: Run, node: FakeNode, server: FakeApiServer, tmp_path: Path
) -> None:
    """Where the chart was configured to do without, no secret is requested."""
    (path,) = server.lists
    entry = {"urlPrefix": "http://gpushare-extender.gpushare.svc:39999/gpushare-scheduler"}
    config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "extenders": [entry]}
    server.lists[path][1]["data"] = {"config.yaml": yaml.safe_dump(config)}
    access = ("--root", str(node.root), "--kubeconfig", str(server.kubeconfig(tmp_path)))
    outcome = run("install-scheduler", *access)
    assert "urlPrefix: http://10.96.7.7:39999/gpushare-scheduler" in outcome.out
    assert not [each for each in server.requests if "/secrets" in each]


def test_an_ipv6_address_of_the_extender_is_written_in_brackets(
    run: Run, node: FakeNode, server: FakeApiServer, tmp_path: Path
) -> None:
    """The port would be read as a part of the address."""
    path = "/api/v1/namespaces/gpushare/services/gpushare-extender"
    server.objects[path] = {"spec": {"clusterIP": "fd00:10:96::7"}}
    access = ("--root", str(node.root), "--kubeconfig", str(server.kubeconfig(tmp_path)))
    outcome = run("install-scheduler", *access)
    assert "urlPrefix: https://[fd00:10:96::7]:39999/gpushare-scheduler" in outcome.out


@pytest.mark.parametrize("missing", [("ca.crt", "tls.crt", "tls.key"), ("tls.key",)])
def test_a_secret_that_is_not_filled_yet_is_named(
    run: Run, node: FakeNode, server: FakeApiServer, tmp_path: Path, missing: tuple[str, ...]
) -> None:
    """The chart renders it empty, and the Job fills it a moment later."""
    path = "/api/v1/namespaces/gpushare/secrets/pair"
    data = {key: text for key, text in server.objects[path]["data"].items() if key not in missing}
    server.objects[path] = {"data": data} if data else {}
    access = ("--root", str(node.root), "--kubeconfig", str(server.kubeconfig(tmp_path)))
    outcome = run("install-scheduler", "--apply", *access)
    assert outcome.code == 1
    assert f"the Secret gpushare/pair has no {', '.join(missing)} yet: wait until" in outcome.err
    assert (node.manifest, node.ours()) == (node.text, [])


def test_a_scheduler_that_kubelet_never_reports_is_put_back(
    run: Run, node: FakeNode, server: FakeApiServer, tmp_path: Path, impatient: None
) -> None:
    """The API server has no such pod, so the command waits, restores, and exits with 1."""
    access = ("--root", str(node.root), "--kubeconfig", str(server.kubeconfig(tmp_path)))
    outcome = run("install-scheduler", "--apply", "--wait", "1", *access)
    assert outcome.code == 1
    assert "the manifest was restored" in outcome.err
    assert "kubelet has not reported" in outcome.err
    assert "/api/v1/namespaces/kube-system/pods/kube-scheduler-master-0" in server.requests
    assert (node.manifest, node.ours()) == (node.text, [])


def test_apply_waits_for_the_scheduler_to_run_with_the_new_configuration(
    run: Run, node: FakeNode, server: FakeApiServer, tmp_path: Path, impatient: None
) -> None:
    """Once the mirror of the pod has the flag and stays ready, it is done."""
    access = ("--root", str(node.root), "--kubeconfig", str(server.kubeconfig(tmp_path)))
    config = re.findall(r"--config=(\S+)", run("install-scheduler", *access).out)[0]
    server.objects["/api/v1/namespaces/kube-system/pods/kube-scheduler-master-0"] = {
        "spec": {"containers": [{"command": ["kube-scheduler", f"--config={config}"]}]},
        "status": {"containerStatuses": [{"ready": True}]},
    }
    outcome = run("install-scheduler", "--apply", *access)
    assert (outcome.code, outcome.err.splitlines()[-1]) == (0, "done")
    assert manifest.read(node.manifest).ours == config
    assert run("install-scheduler", *access).err == "nothing to do\n"


def test_an_uninstall_after_a_kubeadm_upgrade_removes_the_private_key(
    run: Run, node: FakeNode, server: FakeApiServer, tmp_path: Path
) -> None:
    """The new manifest names no file of gpushare; the old configuration has the client's key."""
    files = Files(node.root)
    carry_out(plan.install(files.found(), OFFER), files, accept, before="")
    upgraded = node.text.replace("v1.30.4", "v1.31.0")
    (node.root / MANIFEST[1:]).write_text(upgraded)
    left = node.ours()
    access = ("--root", str(node.root), "--kubeconfig", str(server.kubeconfig(tmp_path)))
    shown = run("uninstall-scheduler", *access)
    assert shown.out.splitlines() == [
        f"remove {node.root}{manifest.FOLDER}/{name}" for name in left
    ]
    assert "nothing was changed" in shown.err
    assert node.ours() == left
    assert run("uninstall-scheduler", "--apply", *access).err == "done\n"
    assert (node.manifest, node.ours()) == (upgraded, [])
    assert run("uninstall-scheduler", "--apply", *access).err == "nothing to do\n"


def test_without_a_chart_in_mode_extender_it_reports_that(
    run: Run, node: FakeNode, server: FakeApiServer, tmp_path: Path
) -> None:
    """A namespace without the extender's objects is a sentence and exit code 1."""
    server.lists = {key: [] for key in server.lists}
    access = ("--root", str(node.root), "--kubeconfig", str(server.kubeconfig(tmp_path)))
    outcome = run("install-scheduler", *access)
    assert outcome.code == 1
    assert "scheduler.mode=extender" in outcome.err
