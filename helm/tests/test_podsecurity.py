"""Pod Security: the restricted profile, field by field, for all but the plugin; and its exceptions.

The profile is that of the Kubernetes documentation (Pod Security Standards, version latest).
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from charting import Object, Rendered, render

PAGE = Path(__file__).parents[2] / "docs" / "threat-model.md"
JOBS: Object = {
    "defragmentation": {"enabled": True, "apply": True},
    "idle": {"schedule": "30 * * * *", "evict": True},
    "verify": {"schedule": "17 4 * * *", "helmTest": True},
}
ALL: Object = {"webhook": {"enabled": True}, "dashboard": {"enabled": True}, **JOBS}
PLUGIN: Object = {"hostProcesses": True, "nvml": {"hostPath": "/opt/nvml"}}
VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral"),
    *("persistentVolumeClaim", "projected", "secret"),
}
SECCOMP = {"RuntimeDefault", "Localhost"}
SELINUX = {"container_t", "container_init_t", "container_kvm_t", "container_engine_t"}


def everything(mode: str, *, mps: bool = False, limits: bool = False) -> Rendered:
    """The chart in a mode with every part of it."""
    more = {"scheduler": {"mode": mode}, "devicePlugin": PLUGIN, "mps": {"enabled": mps}}
    more["driverLimits"] = {"enabled": limits}
    return render(values={**ALL, **more})


def pods(rendered: Rendered) -> Iterator[tuple[str, Object]]:
    """All pods that the chart makes, those of its tests included."""
    yield from rendered.pods()
    yield from rendered.ending_pods()


def breaches(pod: Object) -> Iterator[str]:
    """Sentences on what the restricted profile forbids."""
    outer = pod.get("securityContext", {})
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(key):
            yield key
    for volume in pod.get("volumes", ()):
        if not (set(volume) - {"name"}) <= VOLUMES:
            yield f"volume {volume}"
    if outer.get("sysctls"):
        yield "sysctls"
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in pod.get(kind, ()):
            yield from (f"{container['name']}: {each}" for each in _within(container, outer))


def _within(container: Object, outer: Object) -> Iterator[str]:
    own = container.get("securityContext", {})
    both = {**outer, **own}
    capabilities = own.get("capabilities", {})
    if own.get("privileged"):
        yield "privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield "may gain privileges"
    if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add", ())) - {
        "NET_BIND_SERVICE"
    }:
        yield f"capabilities {capabilities}"
    if both.get("runAsNonRoot") is not True or both.get("runAsUser") == 0:
        yield "may be root"
    if both.get("seccompProfile", {}).get("type") not in SECCOMP:
        yield "no seccomp profile"
    if own.get("procMount", "Default") != "Default":
        yield "another /proc"
    yield from _labels(both)
    if any(port.get("hostPort") for port in container.get("ports", ())):
        yield "a port of the host"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if container.get(probe, {}).get("httpGet", {}).get("host"):
            yield "a probe of another host"


def _labels(both: Object) -> Iterator[str]:
    selinux = both.get("seLinuxOptions", {})
    if selinux.get("type", "container_t") not in SELINUX or {"user", "role"} & set(selinux):
        yield f"SELinux {selinux}"
    if both.get("appArmorProfile", {}).get("type", "RuntimeDefault") == "Unconfined":
        yield "no AppArmor profile"
    if both.get("windowsOptions", {}).get("hostProcess"):
        yield "a process of a Windows host"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["second", "extender"])
def test_all_but_the_plugin_meet_the_restricted_profile(mode: str) -> None:
    """A namespace that enforces it runs the whole stack but the device plugin."""
    found = dict(pods(everything(mode)))
    plugin = found.pop("device-plugin")
    ending = ("test of a share", "test by verify", "job", "cron job", *JOBS)
    assert len(found) == len(("scheduler or extender", "webhook", "dashboard", *ending))
    assert [(name, each) for name, pod in found.items() for each in breaches(pod)] == []
    assert list(breaches(plugin))


def test_the_plugin_breaks_the_profile_in_three_ways_only() -> None:
    """It is root, mounts folders of its node and sees its processes; the rest it keeps."""
    broken = breaches(dict(pods(everything("second")))["device-plugin"])
    kinds = {each.partition(" {")[0] for each in broken}
    assert kinds == {"volume", "hostPID", "device-plugin: may be root"}
    assert "hostPID" in explained()


@pytest.mark.slow
def test_with_mps_it_breaks_the_profile_in_one_more_that_is_explained() -> None:
    """Three capabilities come with the daemons, each with its reason."""
    pod = dict(pods(everything("second", mps=True)))["device-plugin"]
    kinds = {each.partition(" {")[0] for each in breaches(pod)}
    assert kinds == {
        *("volume", "hostPID"),
        *("device-plugin: may be root", "device-plugin: capabilities"),
    }
    (container,) = pod["containers"]
    added = container["securityContext"]["capabilities"]["add"]
    assert added
    assert {"hostPID", *added} - explained() == set()


def explained() -> set[str]:
    """What the page gives a reason for: the first cells of its tables."""
    return set(re.findall(r"^\| `([^`]*)` \|", PAGE.read_text(), flags=re.MULTILINE))


def test_every_mount_of_the_plugin_has_its_reason() -> None:
    """The page names each folder of the node that the plugin can be given, and why."""
    pod = dict(pods(everything("second", mps=True, limits=True)))["device-plugin"]
    secrets = {item["name"] for item in pod["volumes"] if "secret" in item}
    memory = {item["name"] for item in pod["volumes"] if "emptyDir" in item}
    folders = [item for item in pod["volumes"] if item["name"] not in secrets | memory]
    paths = {item["name"]: item["hostPath"]["path"] for item in folders}
    mounted = {mount["name"] for item in pod["containers"] for mount in item["volumeMounts"]}
    assert (secrets, memory) == ({"metrics-certificate"}, {"mps-shm"})
    assert mounted == set(paths) | secrets | memory
    assert set(paths.values()) - explained() == set()


def writable(rendered: Rendered) -> list[str]:
    """Folders of its node that the plugin can write to."""
    (container,) = dict(pods(rendered))["device-plugin"]["containers"]
    mounts = container["volumeMounts"]
    return [mount["mountPath"] for mount in mounts if not mount.get("readOnly")]


@pytest.mark.slow
def test_without_mps_only_sockets_histories_and_cdi_files_can_be_written() -> None:
    """Without these two a plugin that was taken over can change no file but its socket."""
    sockets, history = "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/plugins/gpushare-usage"
    assert writable(everything("second")) == [sockets, "/var/run/cdi", history]
    plugin = {**PLUGIN, "cdi": {"enabled": False}, "record": {"enabled": False}}
    assert writable(render(values={**ALL, "devicePlugin": plugin})) == [sockets]


def test_limits_of_the_driver_add_the_cgroups_and_nothing_else() -> None:
    """No capability and no process of the node comes with them."""
    plain, limited = everything("second"), everything("second", limits=True)
    assert set(writable(limited)) - set(writable(plain)) == {"/sys/fs/cgroup"}
    before, after = (list(breaches(dict(pods(each))["device-plugin"])) for each in (plain, limited))
    (added,) = set(after) - set(before)
    assert added.startswith("volume ")
    assert "/sys/fs/cgroup" in added


def test_every_test_that_the_threat_model_names_is_there() -> None:
    """A mitigation that names a proof names one that exists."""
    root = PAGE.parents[1]
    named = set(re.findall(r"`([\w/.-]+\.py)::(test_\w+)`", PAGE.read_text()))
    assert len(named) > 15
    missing = [
        f"{path}::{name}"
        for path, name in sorted(named)
        if not (root / path).is_file() or f"def {name}(" not in (root / path).read_text()
    ]
    assert missing == []
