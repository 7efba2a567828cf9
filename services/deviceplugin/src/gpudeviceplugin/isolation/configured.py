"""The parts of isolation that settings enable: MPS daemons and limits by the driver.

The modules of what is not enabled are not imported: the plugin runs on every GPU node.
"""

from typing import TYPE_CHECKING

from gpudeviceplugin.cluster.events import Events
from gpudeviceplugin.gpus.driver import PatientDriver
from gpudeviceplugin.isolation.cgroup_tree import CgroupTree
from gpudeviceplugin.settings import DevicePluginSettings
from gpudeviceplugin.state import NodeState

if TYPE_CHECKING:
    from gpudeviceplugin.isolation.driver_limits import DriverLimits
    from gpudeviceplugin.isolation.mps.fleet import Fleet


def configured_fleet(settings: DevicePluginSettings) -> "Fleet | None":
    """The MPS daemons that the settings require; ``None`` without MPS."""
    place = settings.mps_place
    if place is None:
        return None
    from gpudeviceplugin.isolation.mps.fleet import Fleet  # noqa: PLC0415 - see above
    from gpudeviceplugin.isolation.mps.supervisor import Timing  # noqa: PLC0415 - see above

    return Fleet(
        place,
        control=settings.mps_control,
        multi_user=settings.mps_multi_user,
        volume=settings.mps_shm,
        timing=Timing(check=settings.mps_check_seconds),
    )


def configured_limits(
    settings: DevicePluginSettings, state: NodeState, driver: PatientDriver, events: Events
) -> "DriverLimits | None":
    """The driver limits that the settings enable; ``None`` where they are disabled."""
    if not settings.driver_limits:
        return None
    from gpudeviceplugin.isolation.driver_limits import DriverLimits  # noqa: PLC0415 - see above

    tree = CgroupTree(settings.cgroup_root, settings.cgroup_parent)
    return DriverLimits(
        state, driver, events, tree, interval_seconds=settings.driver_limits_seconds
    )
