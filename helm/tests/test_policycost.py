"""No loop of the API server grows with what a tenant writes, and no component is refused for it."""

import pytest
from admission import SELF, TENANT, Conditions, Policy, held_by, labelled, pod, request
from charting import NAMESPACE, Object, Rendered, render

from gpucore.wire.names import DEFAULT_NAMES, IDLE_NOTICE, RETRY
from gpuextender.webhook import MOST_CONTAINERS

pytestmark = pytest.mark.slow

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:gpushare-"
MOST = 500
MANY = 1800
VARIABLES = 2000
LOOPS = 1700
"""More entries than all loops of a policy take: those of a pod before and after a write,
and those after it once more."""


@pytest.fixture(scope="module")
def rendered() -> Rendered:
    """The chart with every policy about pods."""
    return render("1.33.0", {"idle": {"schedule": "30 * * * *", "evict": True}})


def tagged(number: int, **annotations: str) -> Object:
    """A bound pod with this number of annotations of a tenant, and these."""
    return pod(**{f"t{place}": "" for place in range(number)}, **annotations)


def added(item: Object, **annotations: str) -> Object:
    """The pod with these annotations besides its own."""
    return held_by(item, annotations=item["metadata"]["annotations"] | annotations)


WRITES = {
    "kubelet": ("system:node:n1", {"status": {"phase": "Running"}}),
    "scheduler": (f"{ACCOUNT}scheduler", {"status": {"nominatedNodeName": "n1"}}),
    "extender": (f"{ACCOUNT}scheduler", {RETRY: "1"}),
    "plugin": (SELF, {DEFAULT_NAMES.mem_idx: "1"}),
    "idle": (f"{ACCOUNT}idle", {IDLE_NOTICE: "{}"}),
}
"""Who writes a bound pod, and what: fields of the pod, or an annotation."""


@pytest.mark.parametrize("who", WRITES)
@pytest.mark.parametrize("number", [0, MOST, MANY])
def test_the_number_of_annotations_stops_no_component(
    rendered: Rendered, who: str, number: int
) -> None:
    """A tenant chooses it: no refusal and no loop of the API server follows from it."""
    user, change = WRITES[who]
    before = tagged(number, **{DEFAULT_NAMES.mem_pod: "2"})
    after = before | change if "status" in change else added(before, **change)
    admission_request = request(user, node="n1")
    for name in ("allocation", "device-plugin", "extender", "idle"):
        answer, loops = Policy(rendered, f"-{name}").counted(admission_request, before, after)
        assert (answer, loops < LOOPS) == ("", True)


def test_a_user_gives_a_pod_a_bounded_number_of_annotations(rendered: Rendered) -> None:
    """At creation and later; what the stack wrote does not count, older pods keep theirs."""
    policy = Policy(rendered, "-allocation")
    made = request(TENANT, verb="CREATE")
    assert policy.refuses(made, None, tagged(MOST)) == ""
    sentence = f"a pod has at most {MOST} annotations: remove some of them"
    assert policy.refuses(made, None, tagged(MOST + 1)) == sentence
    changed = request(TENANT)
    bound = tagged(MOST - 1, **{DEFAULT_NAMES.mem_idx: "1", RETRY: "1", IDLE_NOTICE: "{}"})
    assert policy.refuses(changed, bound, added(bound, one="1")) == ""
    assert policy.refuses(changed, bound, added(bound, one="1", two="2")) == sentence
    older = tagged(MANY, team="a")
    assert policy.refuses(changed, older, added(older, more="1")) == sentence
    for before, after, answer in [
        (bound, added(bound, **annotations(MANY)), sentence),
        (older, added(older, team="b"), ""),
        (older, tagged(MANY), ""),
    ]:
        found, loops = policy.counted(changed, before, after)
        assert (found, loops < LOOPS) == (answer, True)


def annotations(number: int) -> dict[str, str]:
    """This number of annotations."""
    return {f"more{place}": "" for place in range(number)}


@pytest.mark.parametrize("who", ["extender", "plugin", "idle"])
def test_a_stolen_token_cannot_add_annotations_until_they_are_not_compared(
    rendered: Rendered, who: str
) -> None:
    """A write that adds more than the account's own annotations is refused without a comparison."""
    name = {"extender": "-extender", "plugin": "-device-plugin", "idle": "-idle"}[who]
    policy = Policy(rendered, name)
    before, after = tagged(MOST), added(tagged(MOST), **annotations(MANY))
    admission_request = request(WRITES[who][0], node="n1")
    answer, loops = policy.counted(admission_request, before, after)
    assert "annotation" in answer
    assert loops < LOOPS


def test_labels_of_a_pod_are_compared_as_one(rendered: Rendered) -> None:
    """Their number has no limit, so that the plugin's policy does not loop over those of a pod."""
    policy = Policy(rendered, "-device-plugin")
    before = held_by(pod(), labels=annotations(MANY))
    changed = labelled(before, "x")
    after = added(before, **{DEFAULT_NAMES.mem_idx: "1"})
    admission_request = request(SELF, node="n1")
    for item, sentence in [(after, ""), (changed, "changes annotations")]:
        answer, loops = policy.counted(admission_request, before, item)
        assert sentence in answer
        assert bool(answer) == bool(sentence)
        assert loops < LOOPS


def made(containers: int, variables: int, **each: object) -> Object:
    """A pod with this number of containers, the first of which has this number of variables."""
    boxes: list[Object] = [{"name": f"c{place}", **each} for place in range(containers)]
    boxes[0] |= {"env": [{"name": f"V{place}"} for place in range(variables)]}
    return {"metadata": {"name": "p"}, "spec": {"containers": boxes}}


@pytest.mark.parametrize(
    "item",
    [
        made(MOST_CONTAINERS + 1, 0),
        made(1, VARIABLES + 1),
        made(2, VARIABLES, envFrom=[{"configMapRef": {"name": "c"}}]),
    ],
    ids=["containers", "env", "envFrom"],
)
def test_a_pod_with_very_many_variables_is_refused_without_a_look_at_them(
    rendered: Rendered, item: Object
) -> None:
    """A request may have 80,000 variables; the webhook, which runs first, gets it too."""
    policy = Policy(rendered, "-environment")
    answer, loops = policy.counted(request(TENANT, verb="CREATE"), None, item)
    assert answer == (
        f"a pod has at most {MOST_CONTAINERS} containers with {VARIABLES} entries of env and "
        "envFrom in all: remove some of them"
    )
    assert loops < LOOPS
    assert Conditions(rendered)(item)


def test_a_pod_with_many_variables_passes(rendered: Rendered) -> None:
    """Up to a number that programs do not have."""
    item = made(10, VARIABLES)
    policy = Policy(rendered, "-environment")
    assert policy.refuses(request(TENANT, verb="CREATE"), None, item) == ""
    assert not Conditions(rendered)(item)
