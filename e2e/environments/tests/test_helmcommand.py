"""Helm's words of guides: read as helm reads them, and nothing else is taken for one."""

from pathlib import Path

import pytest

from environments import helmcommand


def test_a_failure_of_helm_ends_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a cluster to reach, the status is 1 and the sentence on standard error."""
    config = tmp_path / "kubeconfig"
    config.write_text("apiVersion: v1\nkind: Config\n")
    monkeypatch.setenv("KUBECONFIG", str(config))
    assert helmcommand.main(["uninstall", "gpushare", "-n", "gpushare"]) == 1
    assert capsys.readouterr().err.startswith("Error: ")


@pytest.mark.parametrize(
    "words", [["upgrade", "a", "b", "-n", "c"], ["install", "a", "b"], ["uninstall"]]
)
def test_other_words_are_a_mistake_of_the_page(words: list[str]) -> None:
    """Status 2, as argparse has it, and nothing is done."""
    with pytest.raises(SystemExit) as ended:
        helmcommand.main(words)
    assert ended.value.code == 2


def test_later_files_of_values_go_before_earlier_ones(tmp_path: Path) -> None:
    """As Helm has it, for keys of the first level."""
    one, two = tmp_path / "1.yaml", tmp_path / "2.yaml"
    one.write_text("a: 1\nb: 1\n")
    two.write_text("b: 2\n")
    assert helmcommand.values([one, two]) == {"a": 1, "b": 2}
