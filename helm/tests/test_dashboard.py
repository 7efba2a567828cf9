"""The page in the cluster: absent unless requested, reached on one port, able to read alone."""

import ssl
from pathlib import Path

import helm_python as helm
import pytest
import typer
from charting import NAMESPACE, Object, Rendered, render
from handshake import laid_out, shake_hands
from typer.core import TyperGroup
from typer.main import get_command

from gpuinspect.commands.main import app

pytestmark = pytest.mark.slow

READING = {
    ("", "nodes"),
    ("", "pods"),
    ("", "events"),
    ("resource.k8s.io", "resourceslices"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "resourceclaimtemplates"),
    ("resource.k8s.io", "deviceclasses"),
}
REVIEWS = {
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
}


def with_page(**values: Object | bool | int | str) -> Rendered:
    """The chart with the page, set up so."""
    return render(values={"dashboard": {"enabled": True, **values}})


def container(rendered: Rendered) -> Object:
    """The one container of the page."""
    (found,) = dict(rendered.pods())["dashboard"]["containers"]
    return dict(found)


def rights(rendered: Rendered) -> dict[tuple[str, str], set[str]]:
    """Verbs in the whole cluster by API group and resource."""
    return {
        (group, resource): set(rule["verbs"])
        for rule in rendered.one("ClusterRole", "-dashboard")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_it_is_not_there_by_default() -> None:
    """It shows pods of all namespaces, so somebody must want it."""
    names = {item["metadata"]["name"] for item in render().objects}
    assert not [name for name in names if "dashboard" in name]


def test_tokens_are_required_by_default() -> None:
    """The page requires a token, and may review tokens but change nothing else."""
    rendered = with_page()
    assert "--require-token" in container(rendered)["args"]
    assert rights(rendered) == {
        **{key: {"list"} for key in READING},
        **{key: {"create"} for key in REVIEWS},
    }


def test_an_open_page_only_reads() -> None:
    """Where everybody may look, the page has no right but to list."""
    rendered = with_page(requireToken=False)
    assert "--require-token" not in container(rendered)["args"]
    assert rights(rendered) == {key: {"list"} for key in READING}


def test_the_restricted_profile() -> None:
    """It is no root, cannot write its own files, gains nothing and mounts its certificate alone."""
    pod = dict(with_page().pods())["dashboard"]
    context = container(with_page())["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["enableServiceLinks"] is False
    assert [set(volume) for volume in pod["volumes"]] == [{"name", "secret"}]
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(("name", "number"), [("https", 443), ("http", 80)])
def test_the_service_leads_to_the_port_that_is_open(name: str, number: int) -> None:
    """Service, policy, probes and flag agree about the port, whichever it is, with TLS or not."""
    rendered = with_page(port=8181, tls={"enabled": name == "https"})
    found = container(rendered)
    (port,) = rendered.one("Service", "-dashboard")["spec"]["ports"]
    (rule,) = rendered.one("NetworkPolicy", "-dashboard")["spec"]["ingress"]
    assert "--port=8181" in found["args"]
    assert [(item["name"], item["containerPort"]) for item in found["ports"]] == [(name, 8181)]
    assert (port["name"], port["port"], port["targetPort"]) == (name, number, name)
    assert rule == {"ports": [{"port": 8181}]}
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    probed = [found[probe]["httpGet"] for probe in probes]
    assert {(each["scheme"], each["port"]) for each in probed} == {(name.upper(), name)}


def test_its_certificate_is_good_for_the_service_and_for_a_forwarded_port(tmp_path: Path) -> None:
    """Who believes the secret's authority believes the page, in the cluster and at localhost."""
    rendered = with_page()
    folder = laid_out(rendered, "-dashboard", tmp_path / "pair")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    for host in (f"gpushare-dashboard.{NAMESPACE}.svc", "localhost", "127.0.0.1"):
        shake_hands(server, ssl.create_default_context(cafile=folder / "ca.crt"), host=host)
    (mount,) = container(rendered)["volumeMounts"]
    assert f"--tls-certificates={mount['mountPath']}" in container(rendered)["args"]


def test_an_own_secret_replaces_its_generated_one() -> None:
    """A certificate from elsewhere, which browsers know, is mounted and none is generated."""
    rendered = with_page(tls={"secretName": "mine"})
    (volume,) = dict(rendered.pods())["dashboard"]["volumes"]
    assert volume["secret"]["secretName"] == "mine"
    assert "gpushare-dashboard" not in {item["metadata"]["name"] for item in rendered.of("Secret")}


def test_a_plain_page_has_nothing_of_tls() -> None:
    """Behind an ingress that speaks plain HTTP there is no secret, flag or mount."""
    rendered = with_page(tls={"enabled": False})
    assert "gpushare-dashboard" not in {item["metadata"]["name"] for item in rendered.of("Secret")}
    assert "volumes" not in dict(rendered.pods())["dashboard"]
    assert not [flag for flag in container(rendered)["args"] if "tls" in flag]


def test_the_policy_can_name_who_may_come() -> None:
    """Peers from the values, such as an ingress, are the only ones let in."""
    peer = {"namespaceSelector": {"matchLabels": {"name": "ingress"}}}
    values = {"dashboard": {"enabled": True}, "networkPolicy": {"dashboardFrom": [peer]}}
    policy = render(values=values).one("NetworkPolicy", "-dashboard")
    assert policy["spec"]["ingress"][0]["from"] == [peer]


def test_names_of_the_cluster_reach_the_page() -> None:
    """Another resource domain and annotation prefix are passed to it."""
    values = {
        "dashboard": {"enabled": True},
        "resourceDomain": "example.com",
        "annotationPrefix": "EXAMPLE_COM",
    }
    arguments = container(render(values=values))["args"]
    assert arguments[0] == "dashboard"
    assert "--resource-domain=example.com" in arguments
    assert "--annotation-prefix=EXAMPLE_COM" in arguments


def test_every_flag_is_known_to_the_command() -> None:
    """The page does not die of a flag that its command has lost or never had."""
    name, *flags = container(with_page())["args"]
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    command = group.get_command(typer.Context(group), name)
    assert command
    known = {flag for option in command.params for flag in option.opts}
    assert flags
    assert {flag.partition("=")[0] for flag in flags} <= known


@pytest.mark.parametrize(
    ("config_maps", "mix", "roles_bound"),
    [(False, False, 2), (False, True, 3), (True, False, 3), (True, True, 4)],
)
def test_it_is_bound_to_roles_that_exist(config_maps: bool, mix: bool, roles_bound: int) -> None:
    """Its account is made, and every role that it is bound to; one more for each ConfigMap."""
    values = {"unhealthyConfigMaps": config_maps, "extender": {"mixHistory": mix}}
    rendered = render(values={"dashboard": {"enabled": True}, **values})
    roles = {
        item["metadata"]["name"] for kind in ("Role", "ClusterRole") for item in rendered.of(kind)
    }
    account = rendered.one("ServiceAccount", "-dashboard")["metadata"]["name"]
    bound = [
        item["roleRef"]["name"]
        for kind in ("RoleBinding", "ClusterRoleBinding")
        for item in rendered.of(kind)
        if item["subjects"][0]["name"] == account
    ]
    assert len(bound) == roles_bound
    assert set(bound) <= roles


def test_it_reads_the_device_plugins_unless_there_is_a_prometheus() -> None:
    """By the API server's proxy to the pods of its own namespace."""
    for url, expected in (("", [["get"]]), ("http://prometheus:9090", [])):
        rendered = render(values={"dashboard": {"enabled": True, "prometheusUrl": url}})
        named = [r for r in rendered.of("Role") if r["metadata"]["name"].endswith("board-usage")]
        verbs = [
            rule["verbs"]
            for role in named
            for rule in role["rules"]
            if rule["resources"] == ["pods/proxy"]
        ]
        assert verbs == expected


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"requireTokens": True}, "'requireTokens' not allowed"),
        ({"port": 80}, "minimum"),
        ({"intervalSeconds": 0}, "minimum"),
    ],
)
def test_schema_refuses(values: Object, complaint: str) -> None:
    """A typo, a port that only root may open, and reading without a pause are refused."""
    with pytest.raises(helm.HelmValuesError, match=complaint):
        render(values={"dashboard": values})


def test_prometheus_is_read_where_its_address_is_set() -> None:
    """Without one the flag is left out."""
    url = "http://prometheus:9090"
    assert f"--prometheus={url}" in container(with_page(prometheusUrl=url))["args"]
    assert "--prometheus" not in str(container(with_page())["args"])
