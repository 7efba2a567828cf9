"""``gpushare verify`` in the cluster: off by default, the quick rows only, and few rights."""

from typing import Any

from charting import NAMESPACE, Rendered, render
from test_security import granted


def chart(**values: Any) -> Rendered:
    """The chart with its CronJob."""
    return render(values={"verify": {"schedule": "17 4 * * *", **values}})


def test_it_is_off_by_default() -> None:
    """No upgrade of the chart begins to take shares."""
    names = [item["metadata"]["name"] for item in render().objects]
    assert not [name for name in names if name.endswith("verify")]


def test_the_schedule_runs_the_quick_rows_and_records_them() -> None:
    """In the namespace of the release, where it may create pods."""
    job = chart().one("CronJob", "-verify")["spec"]
    assert job["schedule"] == "17 4 * * *"
    assert job["jobTemplate"]["spec"]["activeDeadlineSeconds"] > 240
    (container,) = job["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [
        "verify",
        "--only=quick",
        "--timeout=240",
        f"--namespace={NAMESPACE}",
        "--scheduler=gpushare-scheduler",
        "--resource-domain=aliyun.com",
        "--annotation-prefix=ALIYUN_COM",
        "--record",
    ]


def test_it_may_create_pods_in_its_own_namespace_only() -> None:
    """Of the cluster it lists; events on nodes are in the namespace default."""
    rendered = chart()
    assert granted(rendered.one("ClusterRole", "-verify")) == {
        ("", "nodes"): {"list"},
        ("", "pods"): {"list"},
        ("resource.k8s.io", "resourceslices"): {"list"},
        ("resource.k8s.io", "resourceclaims"): {"list"},
    }
    roles = {
        item["metadata"]["namespace"]: granted(item)
        for item in rendered.objects
        if item["kind"] == "Role" and item["metadata"]["name"].endswith("-verify")
    }
    assert roles == {
        NAMESPACE: {
            ("", "pods"): {"create", "get", "delete", "patch"},
            ("", "pods/log"): {"get"},
            ("batch", "jobs"): {"create", "get", "delete"},
        },
        "default": {("", "events"): {"create"}},
    }


def test_helm_test_runs_the_same_rows_where_it_is_enabled() -> None:
    """It records nothing: a test is no monitoring."""
    rendered = render(values={"verify": {"helmTest": True}})
    pod = rendered.one("Pod", "-test-verify")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,) = pod["spec"]["containers"]
    assert "--only=quick" in container["args"]
    assert "--record" not in container["args"]
    assert pod["spec"]["serviceAccountName"] == "gpushare-verify"
