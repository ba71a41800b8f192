"""Faults in the search over sessions, and in the servers and files that frontends lend to them."""

from fault import SESSION, Fault

TOOL_CALL = SESSION + "calls/tool_call.py"
LOANS = "daemon/tiller_daemon/mcp/loans.py"
OF_SEARCH = "tests/session/test_searching.py::"
OF_LENDING = "tests/session/test_lending.py::"
OF_LOANS = "tests/mcp_servers/test_loans.py::test_loans_agree_with_a_model"
OF_EDITORS = "tests/acp/test_editor_files.py::"
HISTORIES = OF_SEARCH + "test_the_index_has_what_a_new_one_would_have_after_any_history"

SEARCH = (
    Fault(
        "text from before a kill is indexed after the restart",
        SESSION + "searching.py",
        "SearchableSessions._compare",
        "A.pop(B, None) != (C, D)",
        "A.pop(B, None) is None",
        HISTORIES,
    ),
    Fault(
        "a session that is gone from the log is removed from the index",
        SESSION + "searching.py",
        "SearchableSessions._compare",
        "for A in B:\n    C.setdefault(A)",
        "pass",
        HISTORIES,
    ),
    Fault(
        "text that a power failure took from the log is removed from the index",
        SESSION + "searching.py",
        "SearchableSessions._index_session",
        "not await self._is_same(A, B)",
        "False",
        HISTORIES,
    ),
    Fault(
        "a session whose indexing was interrupted is indexed later",
        SESSION + "searching.py",
        "SearchableSessions._catch_up",
        "self._stale.setdefault(A)\nraise",
        "raise",
        OF_SEARCH + "test_what_a_search_could_not_wait_for_is_there_for_the_next_one",
    ),
    Fault(
        "a lost index is rebuilt",
        SESSION + "searching.py",
        "SearchableSessions._use",
        "self._is_compared = False",
        "pass",
        HISTORIES,
    ),
    Fault(
        "each event causes its session to be indexed",
        SESSION + "searching.py",
        "SearchableSessions.noting",
        "self.note(A)",
        "pass",
        "tests/e2e/test_search.py"
        "::test_sessions_are_found_across_kills_damage_and_the_loss_of_the_index",
    ),
    Fault(
        "a search does not find a discarded answer",
        SESSION + "searching.py",
        "texts_of",
        'A != "discarded"',
        "A",
        HISTORIES,
    ),
    Fault(
        "a sub-agent's report does not count as the user's input",
        SESSION + "searching.py",
        "texts_of",
        "A != CLIENT",
        "A",
        HISTORIES,
    ),
    Fault(
        "a search does not find the prompt of a sub-agent",
        SESSION + "searching.py",
        "SearchableSessions._index_session",
        "if A.owner_id:",
        "if False:",
        OF_SEARCH + "test_the_prompts_of_sub_agents_are_neither_found_nor_in_the_history_of_inputs",
    ),
    Fault(
        "G13 a key that a model repeats is neither logged nor indexed",
        "daemon/tiller_daemon/models/redacted.py",
        "_Redaction.feed",
        "return self._take_text(A)",
        "return (A,)",
        "tests/models/test_redacted.py::test_g13_no_cut_lets_a_key_through_and_the_rest_is_as_it_was",
    ),
)

LENDING = (
    Fault(
        "a loan ends with its lease",
        LOANS,
        "Loans.end_over",
        "A.ends_at <= B",
        "False",
        OF_LENDING + "test_a_loan_outlives_an_idle_session_but_not_its_lease",
    ),
    Fault(
        "a lease is as long as promised",
        LOANS,
        "Loans.lend",
        "trio.current_time() + LEASE_S",
        "trio.current_time() + 2 * LEASE_S",
        OF_LENDING + "test_a_loan_outlives_an_idle_session_but_not_its_lease",
    ),
    Fault(
        "a loan does not end while a turn of its session is running",
        LOANS,
        "Loans.end_over",
        "A and B(C)",
        "False",
        OF_LENDING + "test_what_is_taken_back_stays_until_the_running_turn_has_ended",
    ),
    Fault(
        "a loan that is taken back ends",
        LOANS,
        "Loans.lend",
        "A.ends_at = trio.current_time()",
        "pass",
        OF_LOANS,
    ),
    Fault(
        "a server that is no longer lent is ended",
        LOANS,
        "Loans.end_over",
        "_end(A.pop(B))",
        "A.pop(B)",
        OF_LOANS,
    ),
    Fault(
        "a server that is no longer lent is not ended while a turn of its session is running",
        LOANS,
        "Loans.end_over",
        "not A(B)",
        "True",
        OF_LOANS,
    ),
    Fault(
        "deleting a session ends its loans",
        LOANS,
        "Loans.end_all",
        "_end(A.values())",
        "pass",
        OF_LOANS,
    ),
    Fault(
        "G12 a session has a limited number of lenders",
        LOANS,
        "Loans.lend",
        "A is None and len(B) >= LENDERS_MAX",
        "False",
        "tests/acp/test_lending.py::test_a_loan_needs_a_session_and_a_place_among_the_lenders",
    ),
    Fault(
        "sub-agents can use the servers that are lent to their owner",
        LOANS,
        "Loans.share",
        "self._owners[A] = B",
        "pass",
        OF_LOANS,
    ),
    Fault(
        "G13 nothing about a loan is in the log",
        SESSION + "supervisor.py",
        "Supervisor._lend",
        "self._sessions.end_loans()",
        "from tiller_protocol.events import WarningRaised\n"
        "self._sessions.end_loans()\n"
        "session = await self._sessions.find(op.session_id)\n"
        'await session.outbox.emit(WarningRaised("lent", repr(op)))',
        OF_LENDING + "test_a_loan_ends_with_its_session_and_is_in_no_event",
    ),
    Fault(
        "no tool shows the passwords in URLs",
        "daemon/tiller_daemon/redaction/byte_stream.py",
        "without_secrets",
        "without_url_secrets(A)",
        "A",
        "tests/e2e/test_secrets.py::test_no_tool_shows_the_passwords_in_urls",
    ),
    Fault(
        "a password in a URL is hidden if a program prints it in pieces",
        "daemon/tiller_daemon/redaction/byte_stream.py",
        "ByteRedactor.feed",
        "min(A(text) - B, undecided_at(text))",
        "A(text) - B",
        "tests/redaction/test_urls.py::test_a_text_in_two_pieces_is_redacted_like_the_whole",
    ),
    Fault(
        "a placeholder never replaces the password in a URL",
        "daemon/tiller_daemon/tools/editing/file_change.py",
        "keep_url_secrets",
        "sum(A.values()) > 0",
        "False",
        "tests/tools/editing/test_write_and_edit.py::test_a_placeholder_never_replaces_a_password",
    ),
    Fault(
        "G13 the secrets of a loan are redacted",
        "daemon/tiller_daemon/mcp/servers.py",
        "McpServers.secrets",
        "(*A.values(), *B)",
        "A.values()",
        "tests/acp/test_lending.py::test_the_secrets_of_an_editor_are_neither_shown_nor_stored",
    ),
)

EDITORS = (
    Fault(
        "nobody is asked about a change to a file with unsaved changes",
        TOOL_CALL,
        "PreparedToolCall._check",
        "await self._require_saved()",
        "pass",
        OF_EDITORS + "test_a_user_is_not_asked_about_a_change_that_would_be_refused",
    ),
    Fault(
        "a file with unsaved changes is not overwritten",
        TOOL_CALL,
        "PreparedToolCall._run",
        "await self._require_saved()",
        "pass",
        OF_EDITORS + "test_a_change_that_needs_no_approval_is_refused_as_well",
    ),
    Fault(
        "an editor that only loads what a call has written has no unsaved changes",
        TOOL_CALL,
        "PreparedToolCall._run",
        "await A.files.editors.written(B)",
        "pass",
        OF_EDITORS + "test_what_is_saved_is_read_from_disk_and_edited_again_and_again",
    ),
)

FAULTS = SEARCH + LENDING + EDITORS
