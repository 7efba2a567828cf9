"""One GPU takes a part of a share, or the reason why not; both ways to say it agree."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpucore.accounting.device_info import DeviceAllocation, DeviceInfo
from gpucore.model import ContainerRequest, Gpu, IsolationMode, PodRequest
from gpucore.scheduling.device_fit import device_fit_error, fitting_devices
from gpucore.units import GpuIndex, GpuUuid, PodUid

AMOUNTS = st.integers(0, 8)
PERCENT = st.sampled_from([0, 0, 0, 1, 40, 60, 100, 130])
MODES = st.sampled_from([IsolationMode.NONE] * 3 + list(IsolationMode))
SELDOM = st.sampled_from([False, False, False, True])
HOLDS = st.builds(DeviceAllocation, mem=AMOUNTS, core=PERCENT, whole=SELDOM, alone=SELDOM)


@st.composite
def devices(draw: st.DrawFn) -> list[DeviceInfo]:
    """GPUs with random allocations, over-full ones and lost ones among them."""
    found = []
    for number in range(draw(st.integers(0, 4))):
        index = GpuIndex(number)
        gpu = Gpu(index, GpuUuid(f"GPU-{number}"), 8, isolation=draw(MODES))
        device = DeviceInfo(index, None)
        if not draw(SELDOM):
            device = DeviceInfo(index, gpu)
            device.total, device.healthy = 8, not draw(SELDOM)
            device.max_pods = draw(st.integers(0, 3))
        for holder, hold in enumerate(draw(st.lists(HOLDS, max_size=3))):
            device.take(PodUid(f"u{holder}"), hold)
        found.append(device)
    return found


@st.composite
def shares(draw: st.DrawFn) -> PodRequest:
    """What a pod requests of one GPU or of several."""
    mem, core = draw(AMOUNTS), draw(PERCENT)
    return PodRequest(
        (ContainerRequest(mem=mem, core=core),),
        mem=mem,
        core=core,
        gpu_count=draw(st.integers(1, 3)),
        whole_device=draw(st.booleans()),
        isolation=draw(MODES),
    )


@settings(max_examples=500)
@given(devices(), shares())
def test_a_gpu_fits_where_there_is_no_reason_against_it(
    found: list[DeviceInfo], pod_request: PodRequest
) -> None:
    """Placement needs no reasons, which cost most of the time."""
    without = [one for one in found if device_fit_error(one, pod_request) is None]
    assert fitting_devices(found, pod_request) == without
