"""The first configuration: what `tiller init` writes loads as it is meant, whatever was found."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from tiller_client.first_configuration import configuration_text, missing_text
from tiller_protocol.catalog import ProviderOffer

APIS = ("openai_chat", "openai_responses", "anthropic_messages")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
"""A server may call its models anything."""

OFFERS = st.builds(
    ProviderOffer,
    st.text("abcdefgh", min_size=1),
    st.sampled_from(APIS),
    TEXTS,
    st.tuples(TEXTS),
    st.sampled_from(("", "SOME_KEY")),
    st.sampled_from(("", "", "work")),
).filter(lambda offer: not (offer.account and offer.api_key_env))
LISTS = st.lists(OFFERS, min_size=1, max_size=4, unique_by=lambda offer: offer.name)


def providers(offers: list[ProviderOffer]) -> dict[str, dict[str, str]]:
    """The table that the offers should become."""
    return {
        one.name: {"api": one.api}
        | ({"account": one.account} if one.account else {"base_url": one.base_url})
        | ({"api_key_env": one.api_key_env} if one.api_key_env else {})
        for one in offers
    }


@given(offers=LISTS)
def test_the_text_says_what_was_found(offers: list[ProviderOffer]) -> None:
    model = f"{offers[0].name}/{offers[0].models[0]}"
    text = configuration_text(model, offers)
    assert tomllib.loads(text) == {"model": model, "providers": providers(offers)}


@given(offers=LISTS, known=st.integers(0, 4), has_model=st.booleans())
def test_an_existing_file_and_what_it_lacks_make_the_same(
    offers: list[ProviderOffer], known: int, *, has_model: bool
) -> None:
    had = providers(offers[:known])
    existing = {"providers": had} | ({"model": "a/b"} if has_model else {})
    lacks = tomllib.loads(missing_text(existing, "c/d", offers))
    assert lacks.get("model") == (None if has_model else "c/d")
    assert {**had, **lacks.get("providers", {})} == providers(offers)


def test_a_complete_file_lacks_nothing_and_examples_are_valid() -> None:
    offer = ProviderOffer("openai", "openai_responses", "https://x/v1", ("m",), "OPENAI_API_KEY")
    text = configuration_text("openai/m", [offer])
    assert missing_text(tomllib.loads(text), "openai/m", [offer]) == ""
    examples = text.replace("\n# approve", "\napprove").replace("\n# [", "\n[")
    for key in ("mode", "permission", "pattern", "action"):
        examples = examples.replace(f"\n# {key} =", f"\n{key} =")
    loaded = tomllib.loads(examples)
    assert (loaded["approve"], loaded["sandbox"]["mode"]) == ("ask", "workspace_write")
    assert loaded["permissions"][0]["pattern"] == "git push*"
