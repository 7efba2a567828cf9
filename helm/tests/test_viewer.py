"""The role for people: what the commands of a tenant read, and nothing else."""

from charting import render


def test_the_role_can_only_list() -> None:
    """It lists nodes, pods, events, quotas and claims; it cannot write, watch or read secrets."""
    role = render().one("ClusterRole", "-viewer")
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["nodes", "pods", "events", "resourcequotas"],
            "verbs": ["list"],
        },
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": [
                "resourceslices",
                "resourceclaims",
                "resourceclaimtemplates",
                "deviceclasses",
            ],
            "verbs": ["list"],
        },
    ]


def test_nobody_is_bound_to_it() -> None:
    """The chart gives nobody the role: an administrator does."""
    rendered = render()
    bindings = [*rendered.of("RoleBinding"), *rendered.of("ClusterRoleBinding")]
    assert not [each for each in bindings if each["roleRef"]["name"].endswith("-viewer")]


def test_the_role_can_be_left_out() -> None:
    """Without it the chart has no such role."""
    rendered = render(values={"viewerRole": {"enabled": False}})
    names = [role["metadata"]["name"] for role in rendered.of("ClusterRole")]
    assert not [name for name in names if name.endswith("-viewer")]


def test_memory_in_use_has_a_role_of_its_own() -> None:
    """It reaches every pod of the release's namespace over HTTP, which a viewer does not need."""
    rendered = render()
    role = rendered.one("Role", "-usage-reader")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]}]
    left_out = render(values={"viewerRole": {"enabled": False}}).of("Role")
    assert not [each for each in left_out if each["metadata"]["name"].endswith("-usage-reader")]
