"""The page of the documentation that lists the reason codes."""

from gpucore.model import Code


def catalogue_page() -> str:
    """The page of the documentation, as Markdown."""
    lines = [
        "# Reason codes",
        "",
        "Why a pod does not fit a node or a GPU. This page is generated from the code;",
        "`python -m gpucore.explain.catalogue` prints it.",
        "",
        "| code | what it means | what to do |",
        "|---|---|---|",
    ]
    lines += [f"| `{code}` | {code.sentence} | {code.remedy} |" for code in Code]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(catalogue_page(), end="")
