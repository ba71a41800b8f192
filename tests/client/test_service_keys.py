"""Which variables of the shell `tiller daemon install` calls missing keys."""

from pathlib import Path

import pytest

from tiller_client.verbs.machine.service import missing_keys


@pytest.mark.parametrize(
    "line",
    [
        'api_key_env = "PM_KEY"',
        "providers.p = {api = \"openai_chat\", api_key_env='PM_KEY'}",
        '  api_key_env="PM_KEY" # mine',
    ],
)
def test_a_key_that_the_configuration_names_is_missing_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    (tmp_path / "config.toml").write_text(f"[providers.p]\n{line}\n")
    monkeypatch.setenv("PM_KEY", "x")
    environment = tmp_path / "environment"
    assert "PM_KEY" in missing_keys(environment)
    environment.write_text("PM_KEY=x\n")
    assert "PM_KEY" not in missing_keys(environment)
