"""The table of model families, as the configuration can change it."""

from pathlib import Path

import pytest

from support.each import each
from tiller_daemon.config.model_families import BUILT_IN, DEFAULT_PROMPT, FamilyTraits, traits_of
from tiller_daemon.config.model_schema import Family
from tiller_daemon.config.schema import ConfigurationError

PATCHES = [
    *("gpt-5", "openai/gpt-5.2-mini", "gpt-4.1", "gpt-oss:20b"),
    *("codex-mini-latest", "o3", "x/o4-mini"),
]
EDITS = [
    *("claude-opus-4-8", "us.anthropic.claude-x", "gemini-2.5-pro"),
    *("gpt-4o", "qwen3-coder", "llama-o3x"),
]


@each("model", PATCHES + EDITS)
def test_models_that_were_trained_on_patches_get_that_tool(model: str) -> None:
    assert traits_of(model, {}).edit_tool == ("apply_patch" if model in PATCHES else "edit")


def test_every_built_in_prompt_begins_with_the_default_one() -> None:
    assert all((family.prompt or "").startswith(DEFAULT_PROMPT) for family in BUILT_IN.values())
    assert traits_of("unheard-of", {}) == FamilyTraits(DEFAULT_PROMPT, "edit")


def test_a_family_of_the_configuration_comes_first_and_takes_the_rest_from_a_namesake() -> None:
    mine = Family(models=("*claude-x*",), edit_tool="both")
    configured = {"mine": mine, "gpt": Family(prompt="Patch well.")}
    assert traits_of("claude-x-1", configured) == FamilyTraits(DEFAULT_PROMPT, "both")
    assert traits_of("gpt-5", configured) == FamilyTraits("Patch well.", "apply_patch")
    assert traits_of("claude-4", configured).prompt == BUILT_IN["claude"].prompt
    moved = {"gpt": Family(models=("local-*",))}
    assert traits_of("gpt-5", moved) == FamilyTraits()
    assert traits_of("LOCAL-1", moved).edit_tool == "apply_patch"


def test_a_family_is_read_from_the_file(load, places) -> None:
    (places.config / "plan.md").write_text("Be good.", encoding="utf-8")
    families = load('[families.mine]\nmodels = ["m*"]\nprompt_file = "plan.md"\n').families
    assert traits_of("m1", families) == FamilyTraits("Be good.", "edit")
    assert Path(families["mine"].prompt_file or "").is_absolute()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[families.mine]\nedit_tool = "edit"', "expected `models`"),
        ('[families.gpt]\nedit_tool = "sed"', "families.gpt.edit_tool"),
        ('[families.gpt]\nprompt = "x"\nprompt_file = "y"', "exclude each other"),
        ('[families.gpt]\nprompt_file = "gone.md"', "does not exist"),
        ('[families.gpt]\nmodel = ["x"]', "did you mean"),
    ],
)
def test_an_invalid_family_is_an_error_that_names_it(load, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=r"families\.(mine|gpt)") as caught:
        load(text)
    assert problem in str(caught.value)
