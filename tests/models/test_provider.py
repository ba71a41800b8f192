"""Which input a provider's models get."""

from pathlib import Path

from support.each import each
from tiller_daemon.config import Api, Model, Provider
from tiller_daemon.models.accounts.accounts import LoginAccounts
from tiller_daemon.models.accounts.chatgpt import CHATGPT
from tiller_daemon.models.http.reading_pace import ReadingPace
from tiller_daemon.models.provider import ActiveProvider


@each(
    "api, takes_documents",
    [("openai_chat", False), ("openai_responses", True), ("anthropic_messages", True)],
)
def test_documents_go_where_most_servers_take_them_unless_the_model_says_otherwise(
    tmp_path: Path, api: Api, *, takes_documents: bool
) -> None:
    accounts = LoginAccounts(tmp_path, {}, CHATGPT)
    provider = ActiveProvider("x", Provider(api), {}, (), ReadingPace(), accounts)
    assert provider.accepted_input(Model()).documents is takes_documents
    assert provider.accepted_input(Model(documents=True)).documents
    assert not provider.accepted_input(Model(documents=False)).documents
    assert not provider.accepted_input(Model(images=False)).documents
