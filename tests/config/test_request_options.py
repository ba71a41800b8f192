"""Layers of options, and invalid options."""

import copy
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.config import ConfigurationError, load_configuration
from tiller_daemon.config.constraints import check_options
from tiller_daemon.config.request_options import RESERVED, merge_options
from tiller_protocol.places import Places

NAMES = st.sampled_from("abc")
LAYERS = st.dictionaries(
    NAMES,
    st.recursive(
        st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2),
        lambda inner: st.dictionaries(NAMES, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)


@given(st.lists(LAYERS, max_size=5))
def test_the_last_layer_wins_and_tables_are_merged(layers):
    before = copy.deepcopy(layers)
    merged = merge_options(*layers)
    assert layers == before
    assert set(merged) == {name for layer in layers for name in layer}
    for name, value in merged.items():
        said = [layer[name] for layer in layers if name in layer]
        tables = list(takewhile(lambda one: isinstance(one, dict), reversed(said)))
        assert value == (merge_options(*reversed(tables)) if tables else said[-1])


@given(LAYERS)
def test_an_empty_layer_changes_nothing(layer):
    assert merge_options(layer, {}) == layer
    assert merge_options({}, layer) == layer
    assert merge_options(layer, layer) == layer


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *((f"options.{name} = 1", f"`{name}` is set by the daemon") for name in sorted(RESERVED)),
        ("options.since = 2026-11-21", "JSON can't represent"),
        ("options.a = { b = [{ c = inf }] }", "JSON can't represent"),
        ("variants.deep.model = 'x'", "`model` is set by the daemon"),
        ("options = 3", "expected a table"),
        ("variants.deep = 3", "expected a table"),
    ],
)
def test_an_invalid_option_is_named_with_its_line(tmp_path, text, problem):
    places = Places(tmp_path, tmp_path, tmp_path)
    providers = "[providers.p]\napi = 'openai_chat'\n"
    (tmp_path / "config.toml").write_text(f"{providers}[models.'p/m']\n{text}\n")
    with pytest.raises(ConfigurationError, match="line 4: models") as caught:
        load_configuration(places, {})
    assert problem in str(caught.value)


def test_any_json_is_a_valid_option():
    check_options({"a": [1, 2.5, True, "x", {"b": {}}]})
