"""The figures of a run as a digest (JSON) and as a page."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def digest(found: Mapping[str, Any]) -> dict[str, Any]:
    """Medians, percentiles and spreads; the samples themselves are left out."""
    kept = {key: found[key] for key in ("machine", "nodes", "cards", "pods", "runs")}
    plain = spread(found["without_extender"])
    return {
        **kept,
        "pods_per_second_without_extender": plain,
        "subjects": [_subject(subject, plain["median"]) for subject in found["subjects"]],
    }


def _subject(subject: Mapping[str, Any], plain: float) -> dict[str, Any]:
    rate = spread(subject["pods_per_second"])
    return {
        "name": subject["name"],
        "latency_ms": {
            verb: {names: percentiles(times) for names, times in series.items()}
            for verb, series in subject["latency_ms"].items()
        },
        "binds_per_second": {n: spread(r) for n, r in subject["binds_per_second"].items()},
        "pods_per_second": rate,
        "share_of_plain_scheduler": round(rate["median"] / plain, 3),
        "ready_seconds": subject["ready_seconds"],
        "resident_mib": subject["resident_mib"],
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Least, median and greatest of a few runs."""
    return {
        "min": round(min(values), 2),
        "median": round(statistics.median(values), 2),
        "max": round(max(values), 2),
    }


def percentiles(times: Sequence[float]) -> dict[str, float]:
    """p50, p99 and the slowest of many calls, in milliseconds."""
    ordered = sorted(times)
    return {
        "p50": round(ordered[len(ordered) // 2], 3),
        "p99": round(ordered[int(len(ordered) * 0.99)], 3),
        "max": round(ordered[-1], 3),
    }


def markdown(figures: Mapping[str, Any]) -> str:
    """The page ``docs/benchmarks-extender.md``."""
    lines = [
        "# Extender on a real API server",
        "",
        (
            f"`make bench` on {figures['machine']}: {figures['nodes']} nodes x {figures['cards']} "
            f"cards, {figures['pods']} pods known, {figures['runs']} runs of each figure. Client, "
            "API server, etcd and scheduler share the machine with the extender: read ratios first."
        ),
        "",
    ]
    for subject in figures["subjects"]:
        lines += _page(subject)
    plain = figures["pods_per_second_without_extender"]
    lines += [f"The same scheduler without any extender: {_range(plain)} pods/s.", ""]
    return "\n".join(lines)


def _page(subject: Mapping[str, Any]) -> list[str]:
    lines = [f"## {subject['name']}", "", "| verb | names | p50 ms | p99 ms | max ms |"]
    lines.append("|---|---|---|---|---|")
    for verb, series in subject["latency_ms"].items():
        for names, at in series.items():
            lines.append(f"| {verb} | {names} | {at['p50']} | {at['p99']} | {at['max']} |")
    lines.append("")
    for verb in subject["latency_ms"]:
        picture = f"benchmarks/{verb}-{subject['name'].replace(':', '-')}.svg"
        lines.append(f"![Distribution of {verb} calls]({picture})")
    lines += ["", "| figure | median (min to max) |", "|---|---|"]
    for connections, rate in subject["binds_per_second"].items():
        lines.append(f"| binds/s over {connections} connections | {_range(rate)} |")
    share = subject["share_of_plain_scheduler"]
    lines.append(f"| pods/s through kube-scheduler | {_range(subject['pods_per_second'])} |")
    lines.append(f"| of the same scheduler without extender | {share:.0%} |")
    if subject["ready_seconds"] is not None:
        lines.append(f"| start to ready | {subject['ready_seconds']:.2f} s |")
        lines.append(f"| resident memory at the end | {subject['resident_mib']:.0f} MiB |")
    return [*lines, ""]


def _range(rate: Mapping[str, float]) -> str:
    return f"{rate['median']:.0f} ({rate['min']:.0f} to {rate['max']:.0f})"
