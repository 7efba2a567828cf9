"""Series on which the alert rules are tried: a healthy cluster, and what is wrong with it in each.

A value is in promtool's notation: ``1x80`` is 1 and 80 more of it, ``0+3x80`` counts up by 3. One
sample is taken every minute, and everything is queried after the last of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

EXTENDER = 'job="gpushare-extender",namespace="gpu-system",pod="scheduler-0"'
STANDBY = 'job="gpushare-extender",namespace="gpu-system",pod="scheduler-1"'
PLUGIN = 'job="gpushare-device-plugin",namespace="gpu-system",pod="plugin-0",node="gpu-1"'
REPLACED = PLUGIN.replace("plugin-0", "plugin-9")
SCHEDULER = 'job="gpushare-scheduler",namespace="gpu-system",pod="scheduler-0"'
GPU = f'{PLUGIN},gpu="0",uuid="GPU-a"'
WEBHOOK = 'job="gpushare-webhook",namespace="gpu-system",pod="webhook-0"'
TLS = 'folder="/etc/gpushare/tls"'
CLIENT = 'client="kube-scheduler"'
BOX = 'namespace="gpu-system",pod="scheduler-0",container="extender"'
TENANT = 'exported_namespace="a",exported_pod="p"'
MINUTES = 80
SILENT = f"_x{MINUTES}"
"""No sample at all."""


def always(value: float) -> str:
    """The same all the time."""
    return f"{value:.0f}x{MINUTES}"


def growing(by: float) -> str:
    """A counter that grows by this with every sample."""
    return f"0+{by:g}x{MINUTES}"


def _bucket(limit: str, verb: str = "filter") -> str:
    return f'gpushare_extender_verb_seconds_bucket{{{EXTENDER},verb="{verb}",le="{limit}"}}'


def binds(outcome: str) -> str:
    """Series of binds by outcome."""
    return f'gpushare_extender_binds_total{{{EXTENDER},outcome="{outcome}"}}'


def units(kind: str, gpu: int = 0) -> str:
    """Series of a GPU's units by the extender."""
    labels = f'{EXTENDER},node="gpu-1",gpu="{gpu}",kind="{kind}"'
    return f"gpushare_extender_gpu_units{{{labels}}}"


def of(name: str, labels: str, more: str = "") -> str:
    """A series."""
    return f"{name}{{{labels}{',' if more else ''}{more}}}"


READY = of("gpushare_extender_ready", EXTENDER)
READY_TOO = of("gpushare_extender_ready", STANDBY)
UP = of("up", EXTENDER)
EXTENDER_STARTED = of("process_start_time_seconds", EXTENDER)
UP_TOO = of("up", STANDBY)
WEBHOOK_READY = of("gpushare_extender_ready", WEBHOOK)
WEBHOOK_UP = of("up", WEBHOOK)
AGE = of("gpushare_extender_reflector_age_seconds", EXTENDER, 'collection="pods"')
FAILURES = of("gpushare_extender_reflector_failures_total", EXTENDER, 'collection="pods"')
EXPIRY = of("gpushare_extender_certificate_expiry_timestamp_seconds", EXTENDER, TLS)
CLIENT_EXPIRY = of(
    "gpushare_extender_client_certificate_expiry_timestamp_seconds", EXTENDER, CLIENT
)
WORKING_SET = of("container_memory_working_set_bytes", BOX)
OVERFULL = of("gpushare_extender_overfull_gpus", EXTENDER, 'node="gpu-1",gpu="0"')
PENDING = of("gpushare_extender_pending_units", EXTENDER, 'node="gpu-1"')
BOUND = of("gpushare_extender_claims", EXTENDER, 'state="bound"')
WAITING = of("gpushare_extender_waiting_units", EXTENDER)
LEADS = of("leader_election_master_status", SCHEDULER, 'name="gpushare-scheduler"')
LEADS_TOO = LEADS.replace("scheduler-0", "scheduler-1")
SCHEDULER_UP = of("up", SCHEDULER)
ATTEMPTS = of("scheduler_schedule_attempts_total", SCHEDULER, 'result="error"')
DISAGREEMENTS = of("gpushare_plugin_disagreements", PLUGIN)
PLUGIN_UP = of("up", PLUGIN)
PLUGIN_STARTED = of("process_start_time_seconds", PLUGIN)
XID_79 = of("gpushare_gpu_xid_total", PLUGIN, 'gpu="GPU-a",xid="79"')
HEALTHY_GPU = of("gpushare_gpu_healthy", GPU)
UNRESPONSIVE = of("gpushare_plugin_unresponsive_gpus", PLUGIN)
GPU_UNITS = of("gpushare_gpu_units", GPU)
DRIVER_GPUS = of("gpushare_plugin_driver_gpus", PLUGIN)
MPS = of("gpushare_mps_serving", PLUGIN, 'uuid="GPU-a"')
DAY = 86_400

HEALTHY: Mapping[str, str] = {
    READY: always(1),
    READY_TOO: always(1),
    WEBHOOK_READY: always(1),
    WEBHOOK_UP: always(1),
    AGE: always(30),
    FAILURES: always(3),
    _bucket("0.001"): growing(100),
    _bucket("1.0"): growing(100),
    _bucket("5.0"): growing(100),
    _bucket("+Inf"): growing(100),
    binds("bound"): growing(30),
    binds("rejected"): always(2),
    binds("lost"): always(2),
    EXPIRY: always(300 * DAY),
    CLIENT_EXPIRY: always(300 * DAY),
    WORKING_SET: always(200),
    of("container_spec_memory_limit_bytes", BOX): always(1000),
    UP: always(1),
    EXTENDER_STARTED: always(0),
    UP_TOO: always(1),
    BOUND: always(2),
    WAITING: always(0),
    units("total"): always(15),
    units("used"): always(9),
    units("free"): always(6),
    LEADS: always(1),
    LEADS_TOO: always(0),
    SCHEDULER_UP: always(1),
    of("leader_election_master_status", 'job="other",name="kube-scheduler"'): always(0),
    ATTEMPTS: always(1),
    PLUGIN_UP: always(1),
    PLUGIN_STARTED: always(0),
    DISAGREEMENTS: always(0),
    HEALTHY_GPU: always(1),
    UNRESPONSIVE: always(0),
    GPU_UNITS: always(15),
    DRIVER_GPUS: always(8),
    of("gpushare_gpu_xid_total", PLUGIN, 'gpu="GPU-a",xid="31"'): growing(1),
    of("gpushare_plugin_registrations_total", PLUGIN, 'resource="mem",outcome="failed"'): always(1),
    of("gpushare_plugin_refusals_total", PLUGIN, 'resource="mem",code="Unhealthy"'): always(1),
    of("gpushare_plugin_refusals_total", PLUGIN, 'resource="mem",code="WaitsForTurn"'): growing(3),
    of("gpushare_plugin_corrections_total", PLUGIN, 'reason="GpuShareAdopted"'): growing(1),
    MPS: always(1),
}


@dataclass(frozen=True)
class Case:
    """What is wrong, and what the alert then carries.

    Attributes:
        series: in place of the healthy ones of the same name, or beside them.
        labels: of the alert, beside its name and severity.
        also: alerts that belong to the same trouble, with their labels.
    """

    series: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    also: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


_POD = {"namespace": "gpu-system", "pod": "scheduler-0"}
_PODS = {**_POD, "collection": "pods"}
_NODE = {"node": "gpu-1"}
_RELEASE = {"namespace": "gpu-system"}
_OTHER = {"namespace": "other"}


def elsewhere(series: str) -> str:
    """The same series of another release in the same Prometheus."""
    return series.replace('namespace="gpu-system"', 'namespace="other"')


CASES: Mapping[str, Case] = {
    "GpushareExtenderDown": Case(
        {READY: always(0), READY_TOO: SILENT},
        _RELEASE,
        also={"GpushareExtenderNotReady": {**_POD, "job": "gpushare-extender"}},
    ),
    "GpushareExtenderNotReady": Case(
        {READY_TOO: always(0)}, {**_POD, "pod": "scheduler-1", "job": "gpushare-extender"}
    ),
    "GpushareExtenderStale": Case({AGE: always(85)}, _PODS),
    "GpushareExtenderApiErrors": Case({FAILURES: growing(1)}, _PODS),
    "GpushareExtenderSlow": Case(
        {_bucket("0.001"): growing(90), _bucket("1.0"): growing(95)}, {**_RELEASE, "verb": "filter"}
    ),
    "GpushareBindsFail": Case({binds("rejected"): growing(10)}, _RELEASE),
    "GpushareBindsLost": Case({binds("lost"): growing(1)}),
    "GpushareWebhookDown": Case({WEBHOOK_READY: SILENT, WEBHOOK_UP: always(0)}, _RELEASE),
    "GpushareCertificateExpires": Case(
        {EXPIRY: always(13 * DAY)},
        {**_POD, "job": "gpushare-extender", "folder": "/etc/gpushare/tls", "severity": "warning"},
    ),
    "GpushareClientCertificateExpires": Case(
        {CLIENT_EXPIRY: always(13 * DAY)},
        {**_RELEASE, "client": "kube-scheduler", "severity": "warning"},
    ),
    "GpushareMemoryNearLimit": Case({WORKING_SET: always(950)}, {**_POD, "container": "extender"}),
    "GpushareRestarts": Case(
        # Ready for minutes after each start: no alert of readiness fires.
        {
            EXTENDER_STARTED: "0x60 3660x3 _ 3960x3 _ 4260x3 _ 4560x3",
            READY: "1x60 1x3 _ 1x3 _ 1x3 _ 1x3",
        },
        {**_POD, "job": "gpushare-extender"},
    ),
    "GpushareGpuOverfull": Case({OVERFULL: always(1)}, {**_NODE, "gpu": "0"}),
    "GpushareUnitsOnUnknownGpu": Case({PENDING: always(4)}, _NODE),
    "GpushareSharesUnconfirmed": Case({BOUND: always(2), binds("bound"): always(30)}, _RELEASE),
    "GpushareRoomScattered": Case({WAITING: always(6)}, _RELEASE),
    "GpushareSchedulerNoLeader": Case({LEADS: always(0)}, _RELEASE),
    "GpushareLeaderWithoutExtender": Case(
        {READY: always(0)},
        _POD,
        also={"GpushareExtenderNotReady": {**_POD, "job": "gpushare-extender"}},
    ),
    "GpushareSchedulerErrors": Case({ATTEMPTS: growing(1)}),
    "GpusharePluginDown": Case(
        {DISAGREEMENTS: SILENT, HEALTHY_GPU: SILENT, GPU_UNITS: SILENT, MPS: SILENT}, _NODE
    ),
    "GpushareGpuUnhealthy": Case({HEALTHY_GPU: always(0)}, {**_NODE, "gpu": "0", "uuid": "GPU-a"}),
    "GpushareGpuNotResponding": Case({UNRESPONSIVE: always(2)}, _NODE),
    "GpushareGpuMissing": Case({DRIVER_GPUS: "8x70 _x3 7x6"}, _NODE),
    "GpushareGpuErrors": Case(
        # A counter that begins with its first event has no increase yet.
        {XID_79: "_x75 1x4"},
        {**_NODE, "gpu": "GPU-a", "xid": "79"},
    ),
    "GpushareRegistrationFails": Case(
        {
            of(
                "gpushare_plugin_registrations_total", PLUGIN, 'resource="mem",outcome="failed"'
            ): growing(1)
        },
        {**_NODE, "resource": "mem"},
    ),
    "GpushareAllocationsRefused": Case(
        {
            of(
                "gpushare_plugin_refusals_total", PLUGIN, 'resource="mem",code="Unhealthy"'
            ): growing(1)
        },
        {**_NODE, "code": "Unhealthy"},
    ),
    "GpushareDisagreement": Case({DISAGREEMENTS: always(1)}, _NODE),
    "GpushareInventoryStale": Case({GPU_UNITS: always(40)}, {**_NODE, "gpu": "0"}),
    "GpushareShareOverused": Case(
        {
            of(
                "gpushare_pod_over_bytes",
                PLUGIN,
                f'gpu="0",{TENANT}',
            ): always(1 << 30)
        },
        {**_NODE, "gpu": "0", "exported_namespace": "a", "exported_pod": "p"},
    ),
    "GpushareLimitOverridden": Case(
        {of("gpushare_pod_limit_overridden", PLUGIN, f'{TENANT},by="process"'): always(1)},
        {**_NODE, "exported_namespace": "a", "exported_pod": "p", "by": "process"},
    ),
    "GpushareLimitNotInForce": Case(
        {of("gpushare_pod_limit_in_force", PLUGIN, f'gpu="0",{TENANT}'): always(0)},
        {**_NODE, "gpu": "0", "exported_namespace": "a", "exported_pod": "p"},
    ),
    "GpushareVerifyFailed": Case(
        {of("gpushare_verify_row", PLUGIN, 'gpu="0",row="memory"'): always(0)},
        {**_NODE, "gpu": "0", "row": "memory"},
    ),
    "GpushareMpsDown": Case(
        {MPS: always(0), HEALTHY_GPU: always(0)},
        {**_NODE, "uuid": "GPU-a"},
        # The plugin withdraws a GPU whose daemon does not serve.
        also={"GpushareGpuUnhealthy": {**_NODE, "gpu": "0", "uuid": "GPU-a"}},
    ),
}
"""One for each alert, by its name."""

FURTHER: Mapping[str, Case] = {
    "certificates have expired": Case(
        {EXPIRY: always(60), CLIENT_EXPIRY: always(60)},
        also={
            "GpushareCertificateExpires": {
                **CASES["GpushareCertificateExpires"].labels,
                "severity": "critical",
            },
            "GpushareClientCertificateExpires": {
                **CASES["GpushareClientCertificateExpires"].labels,
                "severity": "critical",
            },
        },
    ),
    "the claim of a pod cannot be prepared, and kubelet repeats its call": Case(
        {
            of("gpushare_plugin_claim_failures_total", PLUGIN, 'step="prepare"'): growing(4),
            of("gpushare_plugin_claim_failures_total", PLUGIN, 'step="unprepare"'): growing(4),
        },
        also={"GpushareAllocationsRefused": {**_NODE, "code": "ClaimNotPrepared"}},
    ),
    "a device plugin runs and finds no driver, as after a reboot": Case(
        {HEALTHY_GPU: SILENT, GPU_UNITS: SILENT, MPS: SILENT},
        also={"GpusharePluginDown": _NODE},
    ),
    "the webhook runs and is not ready": Case(
        {WEBHOOK_READY: always(0)}, also={"GpushareWebhookDown": _RELEASE}
    ),
    "no pod of the webhook has an address": Case(
        {WEBHOOK_READY: SILENT, WEBHOOK_UP: SILENT}, also={"GpushareWebhookDown": {}}
    ),
    "the extender of one replica does not run": Case(
        {READY_TOO: SILENT, UP_TOO: always(0)},
        also={
            "GpushareExtenderNotReady": {
                **_POD,
                "pod": "scheduler-1",
                "job": "gpushare-extender",
            }
        },
    ),
    "no kube-scheduler runs beside the extenders": Case(
        {LEADS: SILENT, LEADS_TOO: SILENT, SCHEDULER_UP: always(0)},
        also={"GpushareSchedulerNoLeader": _RELEASE},
    ),
    "the extender beside the leader does not run": Case(
        {READY: SILENT}, also={"GpushareLeaderWithoutExtender": _POD}
    ),
    "no extender of another release runs": Case(
        {elsewhere(UP): always(0)},
        also={
            "GpushareExtenderDown": _OTHER,
            "GpushareExtenderNotReady": {**_POD, **_OTHER, "job": "gpushare-extender"},
        },
    ),
    "extenders of another release are no help": Case(
        {
            READY: always(0),
            READY_TOO: SILENT,
            UP_TOO: SILENT,
            elsewhere(READY): always(1),
        },
        also={
            "GpushareExtenderDown": _RELEASE,
            "GpushareExtenderNotReady": {**_POD, "job": "gpushare-extender"},
        },
    ),
    "no webhook of another release is ready": Case(
        {elsewhere(WEBHOOK_READY): always(0)}, also={"GpushareWebhookDown": _OTHER}
    ),
    "no scheduler of another release leads": Case(
        {elsewhere(LEADS): always(0)}, also={"GpushareSchedulerNoLeader": _OTHER}
    ),
    "another release has few binds, and half of them fail": Case(
        {
            binds("bound"): growing(3000),
            elsewhere(binds("bound")): growing(1),
            elsewhere(binds("rejected")): growing(1),
        },
        also={"GpushareBindsFail": _OTHER},
    ),
    "the extender of another release is slow": Case(
        {
            _bucket("1.0"): growing(3000),
            _bucket("5.0"): growing(3000),
            _bucket("+Inf"): growing(3000),
            elsewhere(_bucket("1.0")): always(0),
            elsewhere(_bucket("5.0")): growing(3),
            elsewhere(_bucket("+Inf")): growing(3),
        },
        also={"GpushareExtenderSlow": {**_OTHER, "verb": "filter"}},
    ),
    "bound pods of another release wait": Case(
        {
            binds("bound"): growing(3000),
            elsewhere(BOUND): always(2),
        },
        also={"GpushareSharesUnconfirmed": _OTHER},
    ),
    "memory is scattered beside a release whose pods wait for more than there is": Case(
        {
            WAITING: always(60),
            elsewhere(WAITING): always(2),
            elsewhere(units("free")): always(6),
        },
        also={"GpushareRoomScattered": _OTHER},
    ),
    "an error recurs soon after the plugin's pod was replaced": Case(
        {
            of("gpushare_gpu_xid_total", REPLACED, 'gpu="GPU-a",xid="79"'): "1x70 stale",
            XID_79: "_x75 1x4",
            PLUGIN_UP: "_x72 1x7",
            PLUGIN_STARTED: f"_x72 {71 * 60}x7",
        },
        also={"GpushareGpuErrors": {**_NODE, "gpu": "GPU-a", "xid": "79"}},
    ),
}
"""Other cases in which alerts fire: those in ``also``."""

STILL_WELL: Mapping[str, Mapping[str, str]] = {
    "memory given out twice by label": {units("total"): always(30)},
    "a GPU is smaller than a unit": {
        GPU_UNITS: always(0),
        units("total"): always(0),
        units("used"): always(0),
        units("free"): always(0),
    },
    "pods wait for more than there is": {WAITING: always(60)},
    "pods wait while what is left is on an unhealthy GPU": {
        WAITING: always(6),
        units("free"): always(0),
    },
    "one of two extenders has just started": {READY: "1x77 0x2"},
    "an extender was upgraded, and its node restarted": {
        EXTENDER_STARTED: "0x60 3660x9 _x2 4320x8"
    },
    "one of two webhooks does not run": {
        of("up", WEBHOOK.replace("webhook-0", "webhook-1")): always(0)
    },
    "the leader's extender started four minutes ago": {READY: "1x75 0x4"},
    "the other replica leads while the first starts": {
        READY: "1x75 0x4",
        LEADS: "1x75 0x4",
        LEADS_TOO: "0x75 1x4",
    },
    "the cluster's own scheduler calls the extender": {
        LEADS: SILENT,
        LEADS_TOO: SILENT,
        SCHEDULER_UP: SILENT,
    },
    "many binds at once": {BOUND: always(50), binds("bound"): growing(3000)},
    "one bind of a quiet cluster was in flight at a scrape": {
        BOUND: "0x68 1 0x10",
        binds("bound"): "30x69 31x10",
    },
    "one of few binds was rejected": {
        BOUND: always(0),
        binds("bound"): always(30),
        binds("rejected"): "2x71 3x8",
    },
    "a pod used more than its share at one scrape": {
        of("gpushare_pod_over_bytes", PLUGIN, f'gpu="0",{TENANT}'): "_x79 1000 stale",
    },
    "a device plugin starts, and has not listed its GPUs": {DRIVER_GPUS: "8x70 0x10"},
    "a driver has listed more GPUs than before": {DRIVER_GPUS: "4x70 8x10"},
    "a GPU was away for a moment": {HEALTHY_GPU: "1x79 0"},
    "a GPU responds a minute after its plugin started": {UNRESPONSIVE: "0x73 1x4 0x10"},
    "a swap of two pods was corrected": {DISAGREEMENTS: "0x77 1x2"},
    "the plugin of one node after the other reads the GPU of a pod": {
        PENDING: "_x60 4x9 _x10",
        PENDING.replace("gpu-1", "gpu-2"): "_x70 4x10",
    },
    "a claim was prepared at the third call": {
        of("gpushare_plugin_claim_failures_total", PLUGIN, 'step="prepare"'): "0x75 2x4"
    },
    "Prometheus did not run 15 minutes ago, and an error is older": {
        XID_79: "1x55 _x12 1x12",
        PLUGIN_UP: "1x55 _x12 1x12",
    },
    "Prometheus has just begun, and an error is older": {
        XID_79: "_x76 1x4",
        PLUGIN_UP: "_x76 1x4",
        PLUGIN_STARTED: "_x76 0x4",
    },
    "a pod without its limit was deleted at once": {
        of("gpushare_pod_limit_overridden", PLUGIN, f'{TENANT},by="environment"'): "_x79 1"
    },
    "a limit of the driver was set again at once": {
        of("gpushare_pod_limit_in_force", PLUGIN, f'gpu="0",{TENANT}'): "1x79 0"
    },
    "somebody else's extender container is full": {
        of("container_memory_working_set_bytes", 'namespace="x",pod="y",container="extender"'): (
            always(99)
        ),
        of("container_spec_memory_limit_bytes", 'namespace="x",pod="y",container="extender"'): (
            always(100)
        ),
    },
}
"""What looks like trouble and is none: nothing fires."""
