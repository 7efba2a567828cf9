"""What the parts may do is what they need: verbs, users, mounts."""

import pytest
from charting import NAMESPACE, Object, Rendered, render

CLAIM_KINDS = ("resourceslices", "resourceclaims", "resourceclaimtemplates", "deviceclasses")
ALLOWED = {
    "extender": {
        ("", "nodes"): {"list", "watch"},
        ("", "pods"): {"get", "list", "watch"},
        ("", "pods/binding"): {"create"},
        ("", "pods/status"): {"patch"},
        ("", "events"): {"create", "patch"},
        ("scheduling.k8s.io", "podgroups"): {"list", "watch"},
    },
    "extender-mix": {("", "configmaps"): {"get", "patch"}},
    "scheduler-leader-election": {("coordination.k8s.io", "leases"): {"create", "get", "update"}},
    "device-plugin": {
        ("", "nodes"): {"list", "watch", "patch"},
        ("", "nodes/status"): {"patch"},
        ("", "pods"): {"list", "watch", "patch"},
        ("", "events"): {"create"},
    },
    "viewer": {
        ("", "nodes"): {"list"},
        ("", "pods"): {"list"},
        ("", "events"): {"list"},
        ("", "resourcequotas"): {"list"},
        **{("resource.k8s.io", kind): {"list"} for kind in CLAIM_KINDS},
    },
    "certificates": {
        ("", "secrets"): {"get", "patch"},
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): {"get", "patch"},
    },
    "usage-reader": {("", "pods/proxy"): {"get"}},
    "webhook": {("", "nodes"): {"list", "watch"}, ("", "pods"): {"list", "watch"}},
}
UNBOUND = {"gpushare-viewer", "gpushare-usage-reader"}
"""Roles for people, which an administrator binds."""
BUILT_IN_ROLES = {
    "system:kube-scheduler",
    "system:volume-scheduler",
    "extension-apiserver-authentication-reader",
}


def granted(role: Object) -> dict[tuple[str, str], set[str]]:
    """Verbs by API group and resource."""
    found: dict[tuple[str, str], set[str]] = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def test_roles_grant_the_listed_verbs_and_nothing_else() -> None:
    """A verb that is not on the list here, or a wildcard, is refused."""
    rendered = render()
    roles = [*rendered.of("Role"), *rendered.of("ClusterRole")]
    found: dict[str, dict[tuple[str, str], set[str]]] = {}
    for role in roles:
        found.setdefault(role["metadata"]["name"].removeprefix("gpushare-"), {}).update(
            granted(role)
        )
    assert found == ALLOWED


@pytest.mark.slow
def test_config_maps_of_kube_system_are_read_only_where_requested() -> None:
    """Extender, webhook and dashboard have neither right nor flag without the value."""
    parts = {"webhook": {"enabled": True}, "dashboard": {"enabled": True}}
    names = ("extender-unhealthy-gpus", "dashboard-listed-gpus")
    for enabled in (False, True):
        rendered = render(values={**parts, "unhealthyConfigMaps": enabled})
        roles = {role["metadata"]["name"] for role in rendered.of("Role")}
        bindings = {item["metadata"]["name"] for item in rendered.of("RoleBinding")}
        for name in (f"gpushare-{name}" for name in names):
            assert (name in roles, name in bindings) == (enabled, enabled)
        assert ("gpushare-webhook-unhealthy-gpus" in bindings) == enabled
        for part, container in (("scheduler", "extender"), ("webhook", ""), ("dashboard", "")):
            pod = rendered.one("Deployment", f"-{part}")["spec"]["template"]["spec"]
            args = [
                arg
                for item in pod["containers"]
                if not container or item["name"] == container
                for arg in item["args"]
            ]
            assert any("--unhealthy-configmaps" in arg for arg in args) == enabled


@pytest.mark.parametrize("mode", ["second", "extender"])
@pytest.mark.parametrize("name", ["webhook", "dashboard", "defragmentation", "verify"])
@pytest.mark.parametrize("enabled", [False, True])
def test_who_places_pods_reads_which_gpus_the_extender_withdraws(
    mode: str, name: str, *, enabled: bool
) -> None:
    """Otherwise pods are evicted for places, or GPUs verified, that the extender does not give."""
    values = {
        "scheduler": {"mode": mode},
        "dashboard": {"enabled": True},
        "defragmentation": {"enabled": True},
        "verify": {"schedule": "17 4 * * *"},
        "unhealthyConfigMaps": enabled,
    }
    rendered = render(values=values)
    bound = {
        item["roleRef"]["name"]
        for item in rendered.of("RoleBinding")
        if item["metadata"]["namespace"] == "kube-system"
        and [each["name"] for each in item["subjects"]] == [f"gpushare-{name}"]
    }
    roles = [role for role in rendered.of("Role") if role["metadata"]["name"] in bound]
    rights = [verb for role in roles for verb in granted(role).get(("", "configmaps"), ())]
    assert ("list" in rights) == enabled


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["second", "extender"])
def test_the_extender_alone_writes_the_history_of_the_mix(mode: str) -> None:
    """One ConfigMap by its name, and no other account or flag refers to it."""
    rendered = render(values={"scheduler": {"mode": mode}, "webhook": {"enabled": True}})
    role, history = rendered.one("Role", "-mix"), rendered.one("ConfigMap", "-mix")
    name = history["metadata"]["name"]
    assert [rule["resourceNames"] for rule in role["rules"]] == [[name]]
    assert "data" not in history
    [subject] = rendered.one("RoleBinding", "-mix")["subjects"]
    part = "scheduler" if mode == "second" else "extender"
    assert subject["name"] == f"gpushare-{part}"
    others = [
        rule
        for each in [*rendered.of("Role"), *rendered.of("ClusterRole")]
        for rule in each["rules"]
        if "configmaps" in rule["resources"] and each is not role
    ]
    writes = {verb for rule in others for verb in rule["verbs"]} - {"get", "list", "watch"}
    assert not writes
    pods = [each["spec"]["template"]["spec"] for each in rendered.of("Deployment")]
    args = [arg for pod in pods for box in pod["containers"] for arg in box.get("args", ())]
    assert [arg for arg in args if "mix-history" in arg] == [f"--mix-history={NAMESPACE}/{name}"]


def test_the_dashboard_reads_the_mix_and_no_other_config_map() -> None:
    """It lists the one ConfigMap by its name, which its flag has; without it there is neither."""
    for kept in (True, False):
        values = {"dashboard": {"enabled": True}, "extender": {"mixHistory": kept}}
        rendered = render(values=values)
        roles = [
            role for role in rendered.of("Role") if role["metadata"]["name"].endswith("-mix-reader")
        ]
        pod = rendered.one("Deployment", "-dashboard")["spec"]["template"]["spec"]
        flags = [arg for arg in pod["containers"][0]["args"] if "mix-history" in arg]
        if not kept:
            assert (roles, flags) == ([], [])
            continue
        name = rendered.one("ConfigMap", "-mix")["metadata"]["name"]
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
        assert [role["rules"] for role in roles] == [[{**rule, "resourceNames": [name]}]]
        assert flags == [f"--mix-history={NAMESPACE}/{name}"]
        [subject] = rendered.one("RoleBinding", "-mix-reader")["subjects"]
        assert subject["name"] == "gpushare-dashboard"


@pytest.mark.slow
def test_without_the_history_of_the_mix_there_is_no_right_to_it() -> None:
    """Neither ConfigMap nor flag; the lease is for nominations then."""
    rendered = render(values={"extender": {"mixHistory": False, "nominate": "off"}})
    kinds = ("Role", "RoleBinding", "ConfigMap")
    names = [item["metadata"]["name"] for kind in kinds for item in rendered.of(kind)]
    assert not [name for name in names if name.endswith("-mix")]
    pod = rendered.one("Deployment", "-scheduler")["spec"]["template"]["spec"]
    args = [arg for box in pod["containers"] for arg in box.get("args", ())]
    assert not [arg for arg in args if "mix-history" in arg or "nominate-lease" in arg]


def test_bindings_refer_to_own_roles_or_the_schedulers() -> None:
    """Nobody is bound to a role that the chart does not make, but for kube-scheduler's own."""
    rendered = render()
    own = {role["metadata"]["name"] for role in [*rendered.of("Role"), *rendered.of("ClusterRole")]}
    bindings = [*rendered.of("RoleBinding"), *rendered.of("ClusterRoleBinding")]
    accounts = {account["metadata"]["name"] for account in rendered.of("ServiceAccount")}
    assert {binding["roleRef"]["name"] for binding in bindings} == own - UNBOUND | BUILT_IN_ROLES
    assert {subject["name"] for item in bindings for subject in item["subjects"]} == accounts


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["second", "extender"])
def test_a_binding_never_changes_its_role(mode: str) -> None:
    """The API server refuses that in an upgrade; so a binding is named as its role, or is below."""
    fixed = {
        "gpushare-scheduler-kube-scheduler": "system:kube-scheduler",
        "gpushare-scheduler-volume-scheduler": "system:volume-scheduler",
        "gpushare-scheduler-authentication-reader": "extension-apiserver-authentication-reader",
        "gpushare-webhook-unhealthy-gpus": "gpushare-extender-unhealthy-gpus",
        "gpushare-defragmentation-unhealthy-gpus": "gpushare-extender-unhealthy-gpus",
        "gpushare-verify-unhealthy-gpus": "gpushare-extender-unhealthy-gpus",
    }
    parts = {name: {"enabled": True} for name in ("webhook", "dashboard", "defragmentation")}
    everything = {**parts, "verify": {"schedule": "17 4 * * *"}, "unhealthyConfigMaps": True}
    rendered = render(values={**everything, "scheduler": {"mode": mode}})
    bindings = [*rendered.of("RoleBinding"), *rendered.of("ClusterRoleBinding")]
    assert len(bindings) > 6
    for binding in bindings:
        name = binding["metadata"]["name"]
        assert binding["roleRef"]["name"] == fixed.get(name, name)


@pytest.mark.slow
def test_containers_cannot_gain_anything() -> None:
    """Every container has a read-only root and no capability, and cannot gain any."""
    found = 0
    jobs: Object = {"defragmentation": {"enabled": True}, "idle": {"schedule": "30 * * * *"}}
    rendered = render(values={"dashboard": {"enabled": True}, **jobs})
    for _, pod in [*rendered.pods(), *rendered.ending_pods()]:
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert "privileged" not in context
            found += 1
    running = ("kube-scheduler", "extender", "device-plugin", "webhook", "dashboard")
    assert found == len((*running, "test", "job", "cron job", *jobs))


@pytest.mark.slow
def test_plugin_changes_config_maps_only_where_requested() -> None:
    """A GPU node that was taken over must not be able to rewrite the cluster's own settings."""
    rendered = render(values={"devicePlugin": {"unhealthyConfigMap": True}})
    (role,), (binding,) = plugin_config_map_rights(rendered)
    assert granted(role) == {("", "configmaps"): {"get", "create", "patch", "delete"}}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert plugin_config_map_rights(render()) == [[], []]


def plugin_config_map_rights(rendered: Rendered) -> list[list[Object]]:
    """Roles, and RoleBindings, for the plugin's ConfigMap."""
    name = "gpushare-device-plugin-unhealthy-gpus"
    return [
        [each for each in rendered.of(kind) if each["metadata"]["name"] == name]
        for kind in ("Role", "RoleBinding")
    ]


def test_services_of_the_namespace_do_not_become_settings() -> None:
    """Service gpushare-webhook would be announced as GPUSHARE_WEBHOOK_PORT, a setting."""
    rendered = render(values={"webhook": {"enabled": True}})
    pods = [pod for _, pod in [*rendered.pods(), *rendered.ending_pods()]]
    assert [pod["enableServiceLinks"] for pod in pods] == [False] * len(pods)
    assert len(pods) == 6


@pytest.mark.parametrize("key", ["hostNetwork", "hostPID", "hostIPC"])
def test_no_pod_but_the_plugin_shares_a_namespace_with_its_node(key: str) -> None:
    """Network and shared memory never, and processes to attribute memory in use to pods."""
    sharing = [name for name, pod in render().pods() if key in pod]
    assert sharing == (["device-plugin"] if key == "hostPID" else [])


def test_a_plugin_without_processes_of_its_node_shares_no_namespace() -> None:
    """The value takes it away where no MPS daemon needs it."""
    rendered = render(values={"devicePlugin": {"hostProcesses": False}})
    assert "hostPID" not in dict(rendered.pods())["device-plugin"]


@pytest.mark.slow
def test_only_the_plugin_is_root_and_sees_the_node() -> None:
    """The scheduler meets the restricted Pod Security profile; the plugin sees four folders."""
    for component, pod in render(values={"webhook": {"enabled": True}}).pods():
        paths = {item["hostPath"]["path"] for item in pod["volumes"] if "hostPath" in item}
        if component == "device-plugin":
            root = "/var/lib/kubelet"
            own = {f"{root}/{name}" for name in ("device-plugins", "plugins/gpushare-usage")}
            assert paths == {*own, f"{root}/pod-resources", "/var/run/cdi"}
        else:
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert paths == set()


def test_extender_listens_on_localhost_beside_the_scheduler() -> None:
    """Nobody outside the pod can ask the extender to bind."""
    pod = dict(render().pods())["scheduler"]
    extender = pod["containers"][1]
    assert "--host=127.0.0.1" in extender["args"]
    assert [port["name"] for port in extender["ports"]] == ["metrics"]
    (called,) = render().scheduler_config()["extenders"]
    assert called["urlPrefix"] == "http://127.0.0.1:39999/gpushare-scheduler"
