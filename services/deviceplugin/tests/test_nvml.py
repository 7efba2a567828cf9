"""The adapter of the real binding, on every machine of the stand-in library."""

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakedriver import hardware_of

from gpucore.node.isolation.driver_limits import NO_LIMIT, MemoryLimit
from gpucore.units import GIB
from gpudeviceplugin.gpus.devices import (
    DriverError,
    DriverUnavailableError,
    GpuLostError,
    NodeHardware,
    RecoveryNeededError,
    Xid,
)
from gpudeviceplugin.gpus.inventory import inventory_of
from gpudeviceplugin.gpus.nvml import Nvml
from mocknvml import build

Open = Callable[[str], Nvml]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens the adapter on a machine by name; its state file is ``state`` in the test's folder."""
    ctypes.CDLL(str(build.ensure() / "libnvidia-ml.so.1"))  # found by its name from then on
    opened: list[Nvml] = []

    def start(name: str) -> Nvml:
        monkeypatch.setenv("GPUSHARE_MOCK_NVML_MACHINE", str(build.machine(name)))
        monkeypatch.setenv("GPUSHARE_MOCK_NVML_STATE", str(tmp_path / "state"))
        nvml = Nvml(lambda: str(tmp_path))
        opened.append(nvml)
        nvml.open()
        return nvml

    yield start
    for nvml in opened:
        nvml.close()


def kinds(found: NodeHardware) -> set[tuple[str, ...]]:
    return set(found.links.values())


@pytest.mark.parametrize(
    ("name", "units"),
    [
        ("t4-2x16", [15, 15]),
        ("a100-pcie-4x40", [39] * 4),
        ("dgx1-volta", [15] * 8),
        ("h100-nvswitch-8x80", [79] * 8),
        ("h200-8x141", [139] * 8),
    ],
)
def test_every_gpu_of_a_machine_is_reported_with_its_units(
    machine: Open, name: str, units: list[int]
) -> None:
    """Memory less what the driver reserves, identity and order, for drivers old and new."""
    found = hardware_of(machine(name))
    inventory = inventory_of(found, GIB)
    assert [gpu.units for gpu in inventory.gpus] == units
    assert [gpu.index for gpu in inventory.gpus] == list(range(len(units)))
    assert len({gpu.uuid for gpu in inventory.gpus}) == len(units)
    assert all(gpu.model and gpu.minor >= 0 and gpu.numa >= 0 for gpu in inventory.gpus)
    assert found.driver
    assert found.silent == {}


@pytest.mark.parametrize(("name", "reserved"), [("h200-8x141", 610), ("t4-2x16", -1)])
def test_the_memory_that_the_driver_reserves_is_reported(
    machine: Open, name: str, reserved: int
) -> None:
    """By NVML's memory info v2; a driver that lacks it (T4 of 2019) leaves it unknown."""
    assert {gpu.reserved_mib for gpu in hardware_of(machine(name)).gpus} == {reserved}


def test_instances_report_what_they_reserve(machine: Open) -> None:
    """A MIG instance answers memory info v2 as well."""
    cut, _ = hardware_of(machine("a100-mig-2x40")).gpus
    assert {instance.reserved_mib for instance in cut.instances} == {0}


def test_links_are_reported_by_kind_and_number(machine: Open) -> None:
    """DGX-1 Volta: the reference's table, pair by pair."""
    links = hardware_of(machine("dgx1-volta")).links
    assert links["0-1"] == ("PIX", "NV1")
    assert links["0-3"] == ("PHB", "NV2")
    assert links["2-3"] == ("PIX", "NV2")
    assert links["1-5"] == ("SYS", "NV2")
    assert links["0-5"] == ("SYS",)
    assert len(links) == 28


def test_links_through_a_switch_connect_every_pair(machine: Open) -> None:
    """NVSwitch: every pair has all 18 links of a GPU."""
    assert kinds(hardware_of(machine("h100-nvswitch-8x80"))) == {("NODE", "NV18"), ("SYS", "NV18")}


def test_instances_of_a_gpu_in_mig_mode_are_gpus_of_their_own(machine: Open) -> None:
    """The sliced GPU is not offered; its instances come after all GPUs."""
    found = hardware_of(machine("a100-mig-2x40"))
    inventory = inventory_of(found, GIB)
    assert [(gpu.index, gpu.units, gpu.mig) for gpu in inventory.gpus] == [
        (1, 39, False),
        (2, 19, True),
        (3, 9, True),
        (4, 4, True),
    ]
    assert [device.capability for device in found.gpus] == [(8, 0), (8, 0)]


def test_a_gpu_in_mig_mode_is_no_reason_to_withdraw_the_others(machine: Open) -> None:
    """NVML reports the memory of the whole GPU to privileged callers only: it is not queried."""
    nvml = machine("a100-mig-2x40")
    found = hardware_of(nvml)
    assert (found.silent, [gpu.memory_mib for gpu in found.gpus]) == ({}, [0, 40960])
    with pytest.raises(DriverError, match="Insufficient Permissions"):
        nvml.usage(found.gpus[0].uuid)
    for gpu in inventory_of(found, GIB).gpus:
        nvml.probe(gpu.uuid)
        assert nvml.usage(gpu.uuid).total_bytes == gpu.memory_mib << 20


def test_usage_names_the_processes_of_a_gpu(machine: Open) -> None:
    """Two inference servers on GPU 0 of the T4 machine, no process on GPU 1."""
    nvml = machine("t4-2x16")
    first, second = hardware_of(nvml).gpus
    assert [process.pid for process in nvml.usage(first.uuid).processes] == [21034, 21877]
    assert nvml.usage(second.uuid).processes == ()


def without(tmp_path: Path, *functions: str) -> str:
    """The T4 machine with a driver that lacks these functions too; returns its name."""
    text = build.machine("t4-2x16").read_text()
    path = tmp_path / "older.machine"
    path.write_text(text.replace("missing = ", f"missing = {' '.join(functions)} "))
    return str(path.with_suffix(""))


SECOND_LISTS = ("Compute_v2", "Graphics_v2")
THIRD_LISTS = ("Compute_v3", "Graphics_v3", "MPSCompute_v3")


@pytest.mark.parametrize(
    ("lacking", "pids"),
    [
        (THIRD_LISTS, [21034, 21877]),
        (SECOND_LISTS, [21034, 21877]),
        ((*SECOND_LISTS, *THIRD_LISTS), []),
    ],
)
def test_a_driver_that_lacks_versions_of_the_lists_of_processes_reports_usage(
    machine: Open, tmp_path: Path, lacking: tuple[str, ...], pids: list[int]
) -> None:
    """Drivers before 510 and 535.98 lack version 3; before 450 no list is known to the binding."""
    pairs = (each.split("_") for each in lacking)
    names = [f"nvmlDeviceGet{kind}RunningProcesses_{version}" for kind, version in pairs]
    nvml = machine(without(tmp_path, *names))
    usage = nvml.usage(hardware_of(nvml).gpus[0].uuid)
    assert [process.pid for process in usage.processes] == pids
    assert bool(usage.unlisted_bytes) == (not pids)


def test_usage_has_the_sm_utilization_of_processes_with_work(machine: Open, tmp_path: Path) -> None:
    """Those with memory alone have none; where nothing works, nothing is listed."""
    nvml = machine("t4-2x16")
    first, second = hardware_of(nvml).gpus
    assert sum((nvml.usage(first.uuid).sm_percents or {}).values()) == 29
    assert nvml.usage(second.uuid).sm_percents == {}
    lines = (
        "gpu 1 process pid 7 used_mib 100 sm 35 name busy",
        "gpu 1 process pid 8 used_mib 30 name idle",
    )
    (tmp_path / "state").write_text("\n".join(lines))
    assert nvml.usage(second.uuid).sm_percents == {7: 35}


def test_a_gpu_in_mig_mode_does_not_report_it(machine: Open) -> None:
    """Its instances have no utilization by process."""
    nvml = machine("a100-mig-2x40")
    instance = hardware_of(nvml).gpus[0].instances[0]
    assert nvml.usage(instance.uuid).sm_percents is None


def test_clients_of_mps_are_processes_of_the_gpu(machine: Open, tmp_path: Path) -> None:
    """They are in a list of their own in NVML, and one that is in both counts once."""
    nvml = machine("t4-2x16")
    second = hardware_of(nvml).gpus[1]
    lines = (
        "gpu 1 process pid 7 used_mib 100 type mps name client",
        "gpu 1 process pid 8 used_mib 30 name server",
        "gpu 1 process pid 8 used_mib 20 type mps name server",
    )
    (tmp_path / "state").write_text("\n".join(lines))
    used = {process.pid: process.used_bytes >> 20 for process in nvml.usage(second.uuid).processes}
    assert used == {7: 100, 8: 30}


def test_a_process_that_draws_uses_memory_as_any_other(machine: Open, tmp_path: Path) -> None:
    """It is in a list of its own in NVML, and is no client of MPS."""
    nvml = machine("t4-2x16")
    second = hardware_of(nvml).gpus[1]
    (tmp_path / "state").write_text("gpu 1 process pid 7 used_mib 100 type graphics name vulkan\n")
    (found,) = nvml.usage(second.uuid).processes
    assert (found.pid, found.used_bytes >> 20, found.mps) == (7, 100, False)


def test_the_driver_distinguishes_clients_of_mps_from_other_processes(
    machine: Open, tmp_path: Path
) -> None:
    """A process in NVML's list of MPS clients is one, and any other is not."""
    nvml = machine("t4-2x16")
    second = hardware_of(nvml).gpus[1]
    lines = (
        "gpu 1 process pid 7 used_mib 100 type mps name client",
        "gpu 1 process pid 8 used_mib 30 name escaped",
    )
    (tmp_path / "state").write_text("\n".join(lines))
    assert {each.pid: each.mps for each in nvml.usage(second.uuid).processes} == {7: True, 8: False}


def test_a_lost_gpu_fails_alone(machine: Open, tmp_path: Path) -> None:
    """GPU 1 is lost: it is silent, its questions fail, and GPU 0 answers as before."""
    nvml = machine("t4-2x16")
    first, second = hardware_of(nvml).gpus
    (tmp_path / "state").write_text("gpu 1 lost\n")
    assert list(hardware_of(nvml).silent) == [1]
    nvml.probe(first.uuid)
    with pytest.raises(GpuLostError):
        nvml.probe(second.uuid)
    with pytest.raises(GpuLostError):
        nvml.usage(second.uuid)


def test_a_gpu_that_needs_a_reset_is_found_by_probe_and_enumeration(
    machine: Open, tmp_path: Path
) -> None:
    """It responds to all other queries; the reason names what the driver requires."""
    nvml = machine("h100-r615-2x80")
    first, second = hardware_of(nvml).gpus
    assert nvml.probe(second.uuid)
    (tmp_path / "state").write_text("gpu 1 recovery reset\n")
    with pytest.raises(RecoveryNeededError, match=r"^a reset of the GPU$"):
        nvml.probe(second.uuid)
    assert nvml.usage(second.uuid).total_bytes > 0
    assert nvml.probe(first.uuid)
    assert [gpu.needed_recovery for gpu in hardware_of(nvml).gpus] == ["", "a reset of the GPU"]
    (tmp_path / "state").write_text("gpu 1 recovery none\n")
    assert nvml.probe(second.uuid)


@pytest.mark.parametrize("name", ["t4-2x16", "h200-8x141", "a100-mig-2x40"])
def test_an_old_driver_does_not_report_that_a_gpu_needs_no_recovery(
    machine: Open, name: str
) -> None:
    """With the function and without the field, or with neither."""
    nvml = machine(name)
    for gpu in inventory_of(hardware_of(nvml), GIB).gpus:
        assert not nvml.probe(gpu.uuid)


def test_an_xid_is_reported_with_the_uuid_of_its_gpu(machine: Open, tmp_path: Path) -> None:
    """An event comes once; without one the wait ends empty."""
    nvml = machine("t4-2x16")
    gpus = hardware_of(nvml).gpus
    assert nvml.next_xid(1) is None
    (tmp_path / "state").write_text("xid 79 gpu 1\n")
    event = nvml.next_xid(2000)
    assert event is not None
    assert (event.code, event.uuid) == (79, gpus[1].uuid)
    assert nvml.next_xid(1) is None


def test_an_xid_in_mig_mode_names_the_gpu_and_its_gpu_instance(
    machine: Open, tmp_path: Path
) -> None:
    """NVML has no events of instances: the event is the GPU's and has the id of the instance."""
    nvml = machine("a100-mig-2x40")
    gpu = next(gpu for gpu in hardware_of(nvml).gpus if gpu.mig)
    assert [each.gpu_instance for each in gpu.instances] == [2, 3, 9]
    assert nvml.next_xid(1) is None
    lines = f"xid 94 gpu {gpu.index} gi 3 ci 0\nxid 79 gpu {gpu.index}\n"
    (tmp_path / "state").write_text(lines)
    assert nvml.next_xid(2000) == Xid(94, gpu.uuid, 3)
    assert nvml.next_xid(2000) == Xid(79, gpu.uuid)


def test_an_xid_between_two_subscriptions_is_reported(machine: Open, tmp_path: Path) -> None:
    """Before the set of events is made anew for a GPU that came back, another GPU fails."""
    nvml = machine("t4-2x16")
    first, _ = hardware_of(nvml).gpus
    assert nvml.next_xid(1) is None
    nvml.resubscribe()
    (tmp_path / "state").write_text("xid 79 gpu 0\n")
    nvml.probe(first.uuid)
    assert nvml.next_xid(1) == Xid(79, first.uuid)
    assert nvml.next_xid(1) is None


def test_an_xid_beside_a_lost_gpu_is_reported(machine: Open, tmp_path: Path) -> None:
    """A lost GPU spoils the set of events, but not what was in it about the others."""
    nvml = machine("t4-2x16")
    first, _ = hardware_of(nvml).gpus
    assert nvml.next_xid(1) is None
    (tmp_path / "state").write_text("gpu 1 lost\n")
    with pytest.raises(DriverError):
        nvml.next_xid(2000)
    (tmp_path / "state").write_text("gpu 1 lost\nxid 79 gpu 0\n")
    nvml.probe(first.uuid)
    assert nvml.next_xid(1) == Xid(79, first.uuid)


def test_a_driver_that_is_not_loaded_is_unavailable(machine: Open, tmp_path: Path) -> None:
    """No driver is a clear state, not a crash."""
    (tmp_path / "state").write_text("driver unloaded\n")
    with pytest.raises(DriverUnavailableError):
        machine("t4-2x16")


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("h100-r615-2x80", [True, True]),
        ("a100-pcie-4x40", [False] * 4),
        ("a100-mig-2x40", [False] * 2),
    ],
)
def test_a_driver_reports_whether_it_limits_memory(
    machine: Open, name: str, limits: list[bool]
) -> None:
    """An old driver has no such call, which is no error."""
    assert [gpu.memory_limits for gpu in hardware_of(machine(name)).gpus] == limits


def test_no_gpu_is_queried_for_limits_without_a_cgroup(machine: Open) -> None:
    """As the plugin is by default."""
    machine("h100-r615-2x80")
    assert [gpu.memory_limits for gpu in hardware_of(Nvml()).gpus] == [False, False]


def test_a_memory_limit_is_set_and_read_back(machine: Open, tmp_path: Path) -> None:
    """On one GPU and one cgroup; a cgroup that is not there is an error of the question."""
    nvml = machine("h100-r615-2x80")
    first, second = (gpu.uuid for gpu in hardware_of(nvml).gpus)
    assert nvml.memory_limit(first, str(tmp_path)) == NO_LIMIT
    nvml.set_memory_limit(first, str(tmp_path), MemoryLimit(1 << 30, 3 << 40))
    assert nvml.memory_limit(first, str(tmp_path)) == MemoryLimit(1 << 30, 3 << 40)
    assert nvml.memory_used(first, str(tmp_path)) == 0
    assert nvml.memory_limit(second, str(tmp_path)) == NO_LIMIT
    with pytest.raises(DriverError, match="Invalid Argument"):
        nvml.set_memory_limit(first, "/not/there", NO_LIMIT)


def test_limits_of_an_old_driver_are_an_error_and_no_crash(machine: Open, tmp_path: Path) -> None:
    """Both calls."""
    nvml = machine("t4-2x16")
    first = hardware_of(nvml).gpus[0].uuid
    with pytest.raises(DriverError, match="Function Not Found"):
        nvml.memory_limit(first, str(tmp_path))
    with pytest.raises(DriverError, match="Function Not Found"):
        nvml.set_memory_limit(first, str(tmp_path), NO_LIMIT)
