"""Whole turns over ACP: prompts, permissions, diffs, cancellation, errors."""

import base64
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import bash, calls, calls_in, hang, read, said_in, text
from support.daemon import Daemon
from support.editor import Editor, RpcError, an_editor, selected, words
from support.frontend import Frontend
from support.pdfs import pdf
from support.pictures import picture
from tiller_daemon.models.scripted import (
    CallPart,
    Failure,
    ReasoningPart,
    ScriptedUsage,
    ScriptStep,
    TextPart,
)
from tiller_protocol.events import TurnEnded
from tiller_protocol.items import PDF, UserMessage
from tiller_protocol.ops import Answer, Interrupt, QueueEdit, SessionConfigure, UserInput
from tiller_protocol.settings import Settings


async def use(editor: Editor, daemon: Daemon, session_id: str, *steps: ScriptStep) -> None:
    """Let the session play a script."""
    model = daemon.script(*steps)
    await editor.ask(
        "session/set_config_option", sessionId=session_id, configId="model", value=model
    )


async def test_a_turn_edits_a_file_with_permission(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    edit = CallPart("edit", arguments={"path": "greeting.txt", "old": "hello", "new": "hi"})
    thinks = ScriptStep(parts=(ReasoningPart("Hm."), TextPart("Let me see."), read("greeting.txt")))
    session_id = await editor.new(workspace)
    await use(editor, daemon, session_id, thinks, calls(edit), text("All done.", pieces=3))
    editor.choose = lambda params: selected("once")
    result = await editor.prompt(session_id, "greet shorter")
    assert result["stopReason"] == "end_turn"
    assert (workspace / "greeting.txt").read_text() == "hi\n"
    assert editor.said("agent_thought_chunk") == "Hm."
    assert editor.said() == "Let me see.All done."
    path = str(workspace / "greeting.txt")
    diff = {"type": "diff", "path": path, "oldText": "hello\n", "newText": "hi\n"}
    asked = (await editor.asked())["params"]
    assert asked["toolCall"]["content"] == [diff]
    assert asked["toolCall"]["title"] == "`Edit greeting.txt`"
    kinds = [(one["optionId"], one["kind"]) for one in asked["options"]]
    assert kinds[0] == ("once", "allow_once")
    assert kinds[-1] == ("reject", "reject_once")
    done = [one for one in editor.updates("tool_call_update") if one.get("status") == "completed"]
    assert [(one["kind"], one["title"]) for one in done] == [
        ("read", "read greeting.txt"),
        ("edit", "edit greeting.txt"),
    ]
    assert done[1]["content"] == [diff]
    assert done[1]["locations"] == [{"path": path, "line": 1}]
    assert done[1]["rawInput"]["new"] == "hi"
    assert not list(editor.updates("user_message_chunk")), "the editor shows its prompts itself"


async def test_what_is_always_allowed_is_asked_once(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    session_id = await editor.new(workspace)
    (workspace / "notes").mkdir()
    fetch = CallPart("write", arguments={"path": "a.txt", "content": "a"})
    again = CallPart("write", arguments={"path": "a.txt", "content": "b"})
    await use(editor, daemon, session_id, calls(fetch), calls(again), text("done"))
    editor.choose = lambda params: selected("always")
    await editor.prompt(session_id)
    assert (workspace / "a.txt").read_text() == "b"
    asked = [one for one in editor.seen if one.get("method") == "session/request_permission"]
    assert len(asked) == 1
    assert not list(editor.updates("current_mode_update")), "a granted rule is no choice"
    assert len(list(editor.updates("config_option_update"))) == 1, "only that of the model"
    offered = {one["optionId"]: one for one in asked[0]["params"]["options"]}
    assert offered["always"]["kind"] == "allow_always"
    assert "always_here" not in offered


async def test_a_rejected_call_ends_the_turn(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    session_id = await editor.new(workspace)
    call = CallPart("write", arguments={"path": "a.txt", "content": "a"})
    await use(editor, daemon, session_id, calls(call), text("never"))
    editor.choose = lambda params: selected("reject")
    assert (await editor.prompt(session_id))["stopReason"] == "end_turn"
    assert not (workspace / "a.txt").exists()
    assert await editor.until_update("tool_call_update", status="failed")


async def test_a_dismissed_question_cancels_the_turn(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    session_id = await editor.new(workspace)
    call = CallPart("write", arguments={"path": "a.txt", "content": "a"})
    await use(editor, daemon, session_id, calls(call), text("never"))
    editor.choose = lambda params: {"outcome": {"outcome": "cancelled"}}
    assert (await editor.prompt(session_id))["stopReason"] == "cancelled"
    assert not (workspace / "a.txt").exists()


async def test_an_answer_from_a_terminal_withdraws_the_question(
    editor: Editor, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    session_id = await editor.new(workspace)
    call = CallPart("write", arguments={"path": "a.txt", "content": "a"})
    await use(editor, daemon, session_id, calls(call), text("done"))
    number = await editor.request("session/prompt", sessionId=session_id, prompt=words("go"))
    asked = await editor.asked()
    frontend.follow(session_id)
    request = await frontend.request_opened(session_id)
    await frontend.must(Answer(request.id, "once"))
    withdrawn = await editor.asked("$/cancel_request")
    assert withdrawn["params"]["requestId"] == asked["id"]
    assert (await editor.answer(number))["stopReason"] == "end_turn"
    # An answer that crossed the withdrawal is dropped.
    await editor.send({"id": asked["id"], "result": selected("reject")})
    assert await editor.ask("session/list", cwd=str(workspace))


@pytest.mark.parametrize(
    "answer",
    [
        b'"error": {"code": -32601, "message": "there is no method session/request_permission"}',
        b'"result": 5',
        b'"result": {"outcome": {"outcome": "\xff"}}',
    ],
    ids=["an error", "another type", "not UTF-8"],
)
async def test_a_request_that_the_editor_can_not_ask_stays_open_for_a_terminal(
    editor: Editor, daemon: Daemon, frontend: Frontend, workspace: Path, answer: bytes
) -> None:
    session_id = await editor.new(workspace)
    frontend.follow(session_id)
    call = CallPart("write", arguments={"path": "a.txt", "content": "a"})
    await use(editor, daemon, session_id, calls(call), text("done"))
    number = await editor.request("session/prompt", sessionId=session_id, prompt=words("go"))
    asked = await editor.asked()
    await editor.send_bytes(b'{"jsonrpc": "2.0", "id": %d, %b}\n' % (asked["id"], answer))
    await editor.ask("session/list")
    request = await frontend.request_opened(session_id)
    await frontend.must(Answer(request.id, "once"))
    assert (await editor.answer(number))["stopReason"] == "end_turn"
    assert (workspace / "a.txt").exists()


async def test_cancel_ends_the_turn_and_what_waits_behind_it(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    session_id = await editor.new(workspace)
    await use(editor, daemon, session_id, hang("so"), text("never"))
    first = await editor.request("session/prompt", sessionId=session_id, prompt=words("one"))
    await editor.until_update("agent_message_chunk")
    second = await editor.request("session/prompt", sessionId=session_id, prompt=words("two"))
    await editor.ask("session/list")
    await editor.notify("session/cancel", sessionId=session_id)
    assert (await editor.answer(first))["stopReason"] == "cancelled"
    assert (await editor.answer(second))["stopReason"] == "cancelled"
    assert len(daemon.requests(session_id)) == 1


async def test_a_cancelled_request_is_a_cancelled_turn(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    session_id = await editor.new(workspace)
    await use(editor, daemon, session_id, hang("so"))
    number = await editor.request("session/prompt", sessionId=session_id, prompt=words("one"))
    await editor.until_update("agent_message_chunk")
    await editor.notify("$/cancel_request", requestId=number)
    assert (await editor.answer(number))["stopReason"] == "cancelled"


async def test_a_prompt_during_a_turn_waits_for_its_end(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    gate = Gate(workspace)
    session_id = await editor.new(workspace)
    await use(editor, daemon, session_id, calls(bash(gate.command)), text("first"), text("second"))
    one = await editor.request("session/prompt", sessionId=session_id, prompt=words("one"))
    await gate.reached()
    two = await editor.request("session/prompt", sessionId=session_id, prompt=words("two"))
    await editor.ask("session/list")
    gate.open()
    assert (await editor.answer(one))["stopReason"] == "end_turn"
    assert (await editor.answer(two))["stopReason"] == "end_turn"
    assert editor.said() == "firstsecond"
    answered = [message["id"] for message in editor.seen if message.get("id") in (one, two)]
    assert answered == [one, two]


async def test_a_queued_prompt_that_a_terminal_removes_is_cancelled(
    editor: Editor, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    session_id = await editor.new(workspace)
    await use(editor, daemon, session_id, calls(bash(gate.command)), text("first"))
    one = await editor.request("session/prompt", sessionId=session_id, prompt=words("one"))
    await gate.reached()
    two = await editor.request("session/prompt", sessionId=session_id, prompt=words("two"))
    await editor.ask("session/list")
    [queued] = (await frontend.snapshot(session_id)).queue
    await frontend.must(QueueEdit(session_id, queued.id, "remove"))
    assert (await editor.answer(two))["stopReason"] == "cancelled"
    gate.open()
    assert (await editor.answer(one))["stopReason"] == "end_turn"


async def test_a_prompt_behind_a_failed_turn_is_handed_back(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    gate = Gate(workspace)
    session_id = await editor.new(workspace)
    await use(editor, daemon, session_id, calls(bash(gate.command)))
    one = await editor.request("session/prompt", sessionId=session_id, prompt=words("one"))
    await gate.reached()
    two = await editor.request("session/prompt", sessionId=session_id, prompt=words("two"))
    await editor.ask("session/list")
    gate.open()
    with pytest.raises(RpcError):
        await editor.answer(one)
    with pytest.raises(RpcError, match="was not sent"):
        await editor.answer(two)


async def test_a_failed_turn_is_an_error_with_its_code(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    session_id = await editor.new(workspace)
    refuses = ScriptStep(failures=(Failure("authentication", message="the key is wrong"),))
    await use(editor, daemon, session_id, refuses)
    with pytest.raises(RpcError, match="the key is wrong") as raised:
        await editor.prompt(session_id)
    assert raised.value.data == {"code": "authentication"}


async def test_a_turn_whose_end_can_not_be_stored_is_an_error_and_the_session_goes_on(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    gate = Gate(workspace)
    session_id = await editor.new(workspace)
    # A call that may write starts once the log says so.
    await use(
        editor, daemon, session_id, calls(bash(f"{gate.command} && true > new")), text("Yes.")
    )
    editor.choose = lambda params: selected("once")
    prompt = await editor.request("session/prompt", sessionId=session_id, prompt=words("go"))
    await gate.reached()
    daemon.limit_files(0)
    gate.open()
    with pytest.raises(RpcError, match="its end could not be stored"):
        await editor.answer(prompt)
    daemon.limit_files()
    assert (await editor.prompt(session_id, "go on"))["stopReason"] == "end_turn"
    assert editor.said() == "Yes."


async def test_a_turn_at_its_limit_says_so(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    model = daemon.script(calls(read("greeting.txt")), calls(read("greeting.txt")))
    async with an_editor(daemon, nursery, "--max-steps", "1", "-m", model) as editor:
        session_id = await editor.new(workspace)
        result = await editor.prompt(session_id)
    assert result["stopReason"] == "max_turn_requests"


async def test_the_model_gets_every_kind_of_content(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    session_id = await editor.new(workspace)
    await use(editor, daemon, session_id, text("done"))
    uri = (workspace / "greeting.txt").as_uri()
    paper = base64.b64encode(pdf("a page")).decode()
    image = base64.b64encode(picture()).decode()
    blocks = [
        {"type": "text", "text": "compare "},
        {"type": "resource_link", "uri": uri, "name": "greeting.txt"},
        {"type": "text", "text": " with "},
        {"type": "resource", "resource": {"uri": uri, "text": "unsaved ``` @general\n"}},
        {"type": "image", "mimeType": "image/png", "data": image},
        {"type": "resource", "resource": {"uri": "x:pdf", "blob": paper, "mimeType": PDF}},
        {"type": "resource_link", "uri": "https://example.invalid/a", "name": "page"},
    ]
    await editor.ask("session/prompt", sessionId=session_id, prompt=blocks)
    [request] = daemon.requests(session_id)
    [message] = [item for item in request.items if isinstance(item, UserMessage)]
    assert message.text == (
        "compare greeting.txt with greeting.txt x:pdf page (https://example.invalid/a)\n\n"
        f"{uri} as it is in the editor:\n````\nunsaved ``` @general\n````"
    )
    assert message.files == ("greeting.txt",)
    assert [one.media_type for one in message.images] == ["image/png", PDF]
    assert message.client == "test editor"
    assert not calls_in(request.items), "an attached text starts no sub-agent"


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ({"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}, "audio can't be used"),
        ({"type": "image", "mimeType": "image/png", "data": "%"}, "not valid base64"),
        (
            {"type": "resource", "resource": {"uri": "x:y", "blob": "AA==", "mimeType": "a/b"}},
            "only texts, images and PDF",
        ),
        ({"type": "video"}, "video"),
        ({"type": "text", "text": " "}, "empty"),
    ],
)
async def test_content_that_can_not_be_used_is_refused(
    editor: Editor, daemon: Daemon, workspace: Path, block: dict[str, object], why: str
) -> None:
    session_id = await editor.new(workspace)
    with pytest.raises(RpcError, match=why) as raised:
        await editor.ask("session/prompt", sessionId=session_id, prompt=[block])
    assert raised.value.code == -32602
    assert not daemon.requests(session_id)


async def test_steering_reaches_the_running_turn(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    gate = Gate(workspace)
    session_id = await editor.new(workspace)
    await use(editor, daemon, session_id, calls(bash(gate.command)), text("done"))
    number = await editor.request("session/prompt", sessionId=session_id, prompt=words("one"))
    await gate.reached()
    steered = await editor.ask("_tiller/steer", sessionId=session_id, prompt=words("to the left"))
    gate.open()
    result = await editor.answer(number)
    assert result["_meta"]["tiller"]["turnId"] == steered["turnId"]
    assert said_in(daemon.requests(session_id)[-1].items) == ["one", "to the left"]
    assert editor.said("user_message_chunk") == "to the left"
    with pytest.raises(RpcError) as raised:
        await editor.ask("_tiller/steer", sessionId=session_id, prompt=words("late"))
    assert raised.value.data == {"code": "no_active_turn"}


async def test_the_queue_is_shown_and_changed(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    gate = Gate(workspace)
    model = daemon.script(calls(bash(gate.command)), text("first"), text("second"))
    async with an_editor(daemon, nursery, "-m", model, _meta={"tiller": True}) as editor:
        session_id = await editor.new(workspace)
        number = await editor.request("session/prompt", sessionId=session_id, prompt=words("one"))
        await gate.reached()
        ids = [
            (await editor.ask("_tiller/queue", sessionId=session_id, prompt=words(said)))["inputId"]
            for said in ("two", "three")
        ]
        edit = {"sessionId": session_id, "inputId": ids[0]}
        await editor.ask("_tiller/queue_edit", **edit, action="remove")
        shown = [{"inputId": ids[1], "text": "three", "delivery": "queue"}]
        await editor.until(
            lambda one: (
                one.get("method") == "_tiller/queue_update" and one["params"]["queue"] == shown
            )
        )
        with pytest.raises(RpcError, match="Invalid enum value"):
            await editor.ask("_tiller/queue_edit", **edit, action="sing")
        gate.open()
        await editor.answer(number)
        await editor.until_update("agent_message_chunk", content={"type": "text", "text": "second"})
    assert said_in(daemon.requests(session_id)[-1].items) == ["one", "three"]


async def test_output_of_a_command_comes_while_it_runs(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    gate = Gate(workspace)
    model = daemon.script(calls(bash(f"echo begins; {gate.command}")), text("done"))
    async with an_editor(daemon, nursery, "-m", model, "--approve", "always") as editor:
        session_id = await editor.new(workspace)
        number = await editor.request("session/prompt", sessionId=session_id, prompt=words("one"))
        await gate.reached()
        block = {"type": "content", "content": {"type": "text", "text": "```\nbegins\n```"}}
        await editor.until_update("tool_call_update", content=[block], status="in_progress")
        gate.open("ends\n")
        await editor.answer(number)
        done = await editor.until_update("tool_call_update", status="completed")
        assert done["rawOutput"] == {"output": "begins\nends\n", "exitStatus": 0}


async def test_a_client_with_terminals_gets_output_as_a_terminal(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    model = daemon.script(calls(bash("echo one; echo two; false")), text("done"))
    meta = {"terminal_output": True}
    async with an_editor(daemon, nursery, "-m", model, "--approve", "always", _meta=meta) as editor:
        session_id = await editor.new(workspace)
        await editor.prompt(session_id)
        [started] = editor.updates("tool_call")
        item_id = started["toolCallId"]
        assert started["content"] == [{"type": "terminal", "terminalId": item_id}]
        info = {"terminal_id": item_id, "cwd": str(workspace)}
        assert started["_meta"] == {"terminal_info": info}
        metas = [one["_meta"] for one in editor.updates("tool_call_update") if "_meta" in one]
        data = "".join(one["terminal_output"]["data"] for one in metas[:-1])
        assert data == "one\ntwo\n"
        exited = {"terminal_id": item_id, "exit_code": 1, "signal": None}
        assert metas[-1] == {"terminal_exit": exited}


async def test_a_plan_usage_and_a_title_are_shown(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    session_id = await editor.new(workspace)
    items = [{"text": "look", "state": "completed"}, {"text": "act", "state": "in_progress"}]
    plan = ScriptStep(
        parts=(CallPart("plan", arguments={"items": items}),),
        usage=ScriptedUsage(input_tokens=900, output_tokens=100),
    )
    await use(editor, daemon, session_id, plan, text("done"))
    await editor.prompt(session_id, "make a plan")
    [shown] = editor.updates("plan")
    assert shown["entries"] == [
        {"content": "look", "status": "completed", "priority": "medium"},
        {"content": "act", "status": "in_progress", "priority": "medium"},
    ]
    usage = await editor.until_update("usage_update")
    assert (usage["used"], usage["size"] > 1000) == (1000, True)
    assert (await editor.until_update("session_info_update"))["title"] == "make a plan"


async def test_a_question_of_the_model_is_a_choice_or_a_form(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    asks = CallPart("question", arguments={"text": "Which colour?", "choices": ["red", "blue"]})
    model = daemon.script(calls(asks), text("done"), calls(asks), text("done"))
    async with an_editor(daemon, nursery, "-m", model) as editor:
        session_id = await editor.new(workspace)
        editor.choose = lambda params: selected("choice:1")
        await editor.prompt(session_id)
        asked = (await editor.asked())["params"]
        assert asked["toolCall"]["title"] == "`Which colour? 1. red 2. blue`"
        [shown] = asked["toolCall"]["content"]
        assert "Which colour?\n1. red\n2. blue\n" in shown["content"]["text"]
    assert calls_in(daemon.requests(session_id)[-1].items)[-1].output.endswith("blue")
    async with an_editor(daemon, nursery, "-m", model, elicitation={"form": {}}) as editor:
        await editor.ask("session/resume", sessionId=session_id, cwd=str(workspace))
        editor.choose = lambda params: {"action": "accept", "content": {"other": "green"}}
        await editor.prompt(session_id)
        form = (await editor.asked("elicitation/create"))["params"]
        assert form["requestedSchema"]["properties"]["answer"]["enum"] == ["red", "blue"]
    assert calls_in(daemon.requests(session_id)[-1].items)[-1].output.endswith("green")


async def test_a_client_with_one_key_for_all_choices_leaves_a_question_to_other_frontends(
    editor: Editor, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    """As in CodeCompanion, whose key for a kind stands for the last option of this kind."""
    asks = CallPart("question", arguments={"text": "Which?", "choices": ["red", "blue"]})
    session_id = await editor.new(workspace)
    await use(editor, daemon, session_id, calls(asks), text("done"))
    frontend.follow(session_id)
    number = await editor.request("session/prompt", sessionId=session_id, prompt=words("go"))
    asked = await editor.asked()
    kinds = {one["kind"]: one["optionId"] for one in asked["params"]["options"]}
    await editor.send({"id": asked["id"], "result": selected(kinds["allow_once"])})
    request = await frontend.request_opened(session_id)
    await editor.ask("session/list")
    assert f"tiller answer {request.id} answer TEXT" in str(asked["params"]["toolCall"]["content"])
    await frontend.must(Answer(request.id, "answer", "green"))
    assert (await editor.answer(number))["stopReason"] == "end_turn"
    assert calls_in(daemon.requests(session_id)[-1].items)[-1].output.endswith("green")


async def test_the_request_of_a_sub_agent_is_asked_too(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    agents = daemon.places.config / "agents"
    agents.mkdir(exist_ok=True)
    model = daemon.script(calls(bash("touch made")), text("made it"))
    head = f"description: helps\nmodel: {model}"
    (agents / "helper.md").write_text(f"---\n{head}\n---\nYou help.\n")
    session_id = await editor.new(workspace)
    task = CallPart("task", arguments={"prompt": "help me", "agent": "helper"})
    await use(editor, daemon, session_id, calls(task), text("done"))
    editor.choose = lambda params: selected("once")
    assert (await editor.prompt(session_id))["stopReason"] == "end_turn"
    assert (workspace / "made").exists()
    call = (await editor.asked())["params"]["toolCall"]
    [shown_call] = editor.updates("tool_call")
    assert call["toolCallId"] == shown_call["toolCallId"], "it is asked at the call of the task"
    shown = "".join(block["content"]["text"] for block in call["content"])
    assert "touch made" in shown
    done = await editor.until_update("tool_call_update", status="completed")
    assert done["toolCallId"] == call["toolCallId"]


async def test_a_compaction_is_shown_to_clients_that_can(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    full = ScriptStep(parts=(TextPart("one"),), usage=ScriptedUsage(input_tokens=120_000))
    model = daemon.script(full, text("two"), text("three"), compaction=text("what was done"))
    able = {"compaction": {}}
    async with an_editor(daemon, nursery, "-m", model, session=able) as editor:
        session_id = await editor.new(workspace)
        await editor.prompt(session_id)
        await editor.prompt(session_id)
        shown = await editor.until_update("compaction_update", status="completed")
        assert "what was done" in shown["summary"][0]["text"]
    async with an_editor(daemon, nursery) as other:
        await other.ask("session/load", sessionId=session_id, cwd=str(workspace), mcpServers=[])
        assert "was summarised" in other.said("agent_thought_chunk")
        assert not list(other.updates("compaction_update"))


async def test_warnings_are_notices_for_a_client_that_shows_them(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    fails = ScriptStep(failures=(Failure("authentication", message="no key"),))
    model = daemon.script(fails)
    async with an_editor(daemon, nursery, "-m", model, session={"notices": {}}) as editor:
        session_id = await editor.new(workspace)
        with pytest.raises(RpcError):
            await editor.prompt(session_id)
        notice = await editor.until_update("notice")
        assert notice["severity"] == "error"
        assert "no key" in notice["title"]


async def test_what_a_terminal_does_is_shown(
    editor: Editor, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    session_id = await editor.new(workspace)
    await use(editor, daemon, session_id, text("hi there"))
    frontend.follow(session_id)
    await frontend.must(UserInput(session_id, "from a terminal"))
    ended = await frontend.turn_ended(session_id)
    assert isinstance(ended, TurnEnded)
    await editor.until_update("agent_message_chunk")
    assert editor.said("user_message_chunk") == "from a terminal"
    await frontend.must(SessionConfigure(session_id, Settings(agent="plan")))
    assert await editor.until_update("current_mode_update", currentModeId="plan")
    await frontend.refused(Interrupt(session_id))


async def test_a_prompt_with_half_a_surrogate_pair_is_answered(
    editor: Editor, daemon: Daemon, workspace: Path, frontend: Frontend
) -> None:
    """As `JSON.stringify` writes a text that was cut within an emoji."""
    session_id = await editor.new(workspace)
    await use(editor, daemon, session_id, text("Read."))
    assert (await editor.prompt(session_id, "look \ud83d"))["stopReason"] == "end_turn"
    items = (await frontend.snapshot(session_id)).items
    assert [item.text for item in items if isinstance(item, UserMessage)] == ["look \ufffd"]
