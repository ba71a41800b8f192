"""Prices and windows of the package, in our own terms: what comes of them is what it computes."""

import subprocess
import sys
from datetime import UTC, datetime
from random import Random

import msgspec
import pytest
from genai_prices import Usage as PackageUsage
from genai_prices.data_snapshot import get_snapshot

from support.each import each
from tiller_daemon.models.catalog.catalog import PACKAGE_COMMAND
from tiller_daemon.models.catalog.facts import Facts, ModelRef
from tiller_daemon.models.catalog.price_list import look_up, price_of
from tiller_protocol.items import Usage

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
OPENAI, ANTHROPIC = "https://api.openai.com/v1", "https://api.anthropic.com/v1"
SAMPLE = 400
"""Of some 2,300 models; all of them take ten seconds."""


def test_usual_models_have_a_window_and_a_price() -> None:
    for base_url, model in ((OPENAI, "gpt-5"), (ANTHROPIC, "claude-sonnet-4-5")):
        found = look_up(ModelRef(base_url, model), NOW)
        assert found
        assert found.context_window
        assert found.context_window >= 200_000
        assert found.price
        assert 0 < found.price.input < found.price.output


@each(
    "asked",
    [
        ModelRef(OPENAI, "gpt-nothing"),
        ModelRef("http://127.0.0.1:8080/v1", "gpt-5"),
        ModelRef("https://example.com/v1", "gpt-5"),
        ModelRef("", ""),
    ],
)
def test_a_model_elsewhere_is_not_mistaken_for_one_that_costs(asked: ModelRef) -> None:
    assert look_up(asked, NOW) is None


@each("tokens", [1_000, 150_000, 250_000, 600_000])
def test_a_cost_is_what_the_package_computes(tokens: int) -> None:
    models = [(p, m) for p in get_snapshot().providers for m in p.models]
    compared = 0
    for provider, model in Random(7).sample(models, SAMPLE):
        price = price_of(model.get_prices(NOW))
        if price is None:
            continue
        usage = Usage(tokens, tokens // 2, 700, 0, tokens // 10)
        theirs = PackageUsage(
            input_tokens=usage.input_tokens,
            cache_read_tokens=usage.cached_input_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
        )
        computed = model.calc_price(theirs, provider, genai_request_timestamp=NOW)
        assert price.cost(usage) == pytest.approx(float(computed.total_price)), model.id
        compared += 1
    assert compared > SAMPLE / 2


def test_it_runs_as_a_program() -> None:
    asked = (ModelRef(OPENAI, "gpt-5"), ModelRef(OPENAI, "gpt-nothing"))
    done = subprocess.run(
        PACKAGE_COMMAND, input=msgspec.json.encode(asked), capture_output=True, check=True
    )
    found = msgspec.json.decode(done.stdout, type=tuple[Facts | None, ...])
    assert found == tuple(look_up(one, datetime.now(UTC)) for one in asked)


def test_the_daemon_does_not_load_the_package() -> None:
    code = "import sys, tiller_daemon.app; sys.exit(any('genai' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
