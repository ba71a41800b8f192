"""What one provider wants back is never shown to another."""

from support.each import each
from tiller_daemon.models.dialects.opaque import Origin

ORIGIN = Origin("openai_responses", "https://api.openai.com/v1", "gpt-5")


@each("content", ["", "text", "two\nlines", "openai_responses x y\n"])
def test_what_was_sealed_comes_back_unchanged(content: str) -> None:
    assert ORIGIN.unseal(ORIGIN.seal(content)) == content


@each(
    "other",
    [
        Origin("openai_chat", ORIGIN.base_url, ORIGIN.model),
        Origin(ORIGIN.api, "https://api.openai.com", ORIGIN.model),
        Origin(ORIGIN.api, ORIGIN.base_url, "gpt-5-mini"),
        Origin(ORIGIN.api, ORIGIN.base_url, "gpt"),
    ],
)
def test_another_wire_address_or_model_gets_nothing(other: Origin) -> None:
    assert other.unseal(ORIGIN.seal("text")) is None
    assert ORIGIN.unseal(other.seal("text")) is None


def test_what_was_not_sealed_at_all_goes_nowhere() -> None:
    assert ORIGIN.unseal("") is None
    assert ORIGIN.unseal("gAAAAB") is None
