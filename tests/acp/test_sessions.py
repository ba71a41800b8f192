"""Sessions over ACP: made, listed, opened again, forked, configured, closed; and bad messages."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from e2e.gates import Gate
from e2e.words import bash, calls, hang, read, said_in, text
from support.command_line import CommandLine
from support.daemon import CONFIG, Daemon
from support.editor import Editor, Json, RpcError, an_editor, selected, words
from support.frontend import Frontend
from tiller_daemon.models.scripted import CallPart, ScriptedUsage, ScriptStep, TextPart
from tiller_protocol.answers import RulesResult
from tiller_protocol.events import RequestOpened, TurnEnded
from tiller_protocol.ops import RulesList


async def played(editor: Editor, daemon: Daemon, workspace: Path) -> str:
    """A session with one turn."""
    session_id = await editor.new(workspace)
    answer = ScriptStep(parts=(TextPart("the answer"),), usage=ScriptedUsage(input_tokens=1000))
    daemon.play("roomy", calls(read("greeting.txt")), answer, text("more"))
    option = {"configId": "model", "value": "scripted/roomy"}  # its context window is known
    await editor.ask("session/set_config_option", sessionId=session_id, **option)
    await editor.prompt(session_id, "the question")
    return session_id


async def test_the_greeting_claims_what_there_is(editor: Editor) -> None:
    result = await editor.start()
    assert result["protocolVersion"] == 1
    assert result["agentInfo"]["name"] == "tiller"
    capabilities = result["agentCapabilities"]
    assert capabilities["loadSession"] is True
    assert capabilities["promptCapabilities"] == {
        "image": True,
        "audio": False,
        "embeddedContext": True,
    }
    assert set(capabilities["sessionCapabilities"]) == {
        *("list", "resume", "close", "delete", "fork", "additionalDirectories")
    }
    for method in capabilities["_meta"]["tiller"]["methods"]:
        with pytest.raises(RpcError) as raised:
            await editor.ask(method)
        assert raised.value.code == -32602, "known, but without parameters"


@pytest.mark.parametrize(
    ("capabilities", "info"),
    [
        (None, None),
        ({"fs": None, "session": None, "elicitation": None, "_meta": None}, {"name": None}),
        ({"fs": {"readTextFile": None}, "elicitation": {"form": None}}, {"title": None}),
        ({"fs": True, "session": [], "elicitation": {"form": "yes"}, "_meta": 7}, "an editor"),
    ],
)
async def test_capabilities_that_are_null_or_malformed_are_absent(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path, capabilities: object, info: object
) -> None:
    model = daemon.script(calls(read("greeting.txt")), text("done"))
    async with an_editor(daemon, nursery, greets=False) as editor:
        client = {"clientCapabilities": capabilities, "clientInfo": info}
        await editor.ask("initialize", protocolVersion=1, **client)
        nothing = {"additionalDirectories": None, "mcpServers": None, "_meta": None}
        made = await editor.ask("session/new", cwd=str(workspace), **nothing)
        option = {"configId": "model", "value": model}
        await editor.ask("session/set_config_option", sessionId=made["sessionId"], **option)
        await editor.prompt(made["sessionId"])
        assert not [one for one in editor.seen if one.get("method") == "fs/read_text_file"]
        [call] = editor.updates("tool_call")
        assert call["name"] == "read"


@pytest.mark.parametrize(
    "capabilities", [{"auth": {"terminal": True}}, {"_meta": {"terminal-auth": True}}]
)
async def test_a_client_with_a_terminal_can_set_tiller_up(
    editor: Editor, daemon: Daemon, workspace: Path, capabilities: Json
) -> None:
    """The words of the method follow the agent's command, or by the registry replace its words."""
    [login] = (await editor.start())["authMethods"]
    assert "type" not in login, "it needs no terminal"
    [login, method] = (await editor.start(**capabilities))["authMethods"]
    assert (method["type"], method["args"]) == ("terminal", ["init"])
    tiller = CommandLine(daemon, workspace)
    appended = tiller("acp", *method["args"])
    assert appended == tiller(*method["args"])
    assert "scripted" in appended.out + appended.err


async def test_a_loaded_session_shows_its_conversation(
    editor: Editor, daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    session_id = await played(editor, daemon, workspace)
    async with an_editor(daemon, nursery) as other:
        opened = await other.ask(
            "session/load", sessionId=session_id, cwd=str(workspace), mcpServers=[]
        )
        shown = [update["sessionUpdate"] for update in other.updates()]
        assert shown[:3] == ["user_message_chunk", "tool_call", "agent_message_chunk"]
        assert (await other.until_update("session_info_update"))["title"] == "the question"
        assert (await other.until_update("usage_update"))["used"] == 1000
        assert other.said("user_message_chunk") == "the question"
        assert other.said() == "the answer"
        [call] = other.updates("tool_call")
        assert (call["status"], call["kind"]) == ("completed", "read")
        assert opened["modes"]["currentModeId"] == "build"
        result = await other.prompt(session_id, "again")
        assert result["stopReason"] == "end_turn"
        # The first editor sees what the second one does.
        await editor.until_update("user_message_chunk")
        assert editor.said("user_message_chunk") == "again"


@pytest.mark.parametrize("method", ["session/load", "session/resume", "session/fork"])
async def test_a_session_is_opened_only_in_its_directory(
    editor: Editor, daemon: Daemon, workspace: Path, tmp_path: Path, method: str
) -> None:
    session_id = await played(editor, daemon, workspace)
    (link := tmp_path / "link").symlink_to(workspace)
    for directory in (workspace.parent, workspace / "src", tmp_path / "none", Path("/")):
        with pytest.raises(RpcError, match=f"works in {workspace}, not in {directory}") as raised:
            await editor.ask(method, sessionId=session_id, cwd=str(directory), mcpServers=[])
        assert raised.value.code == -32602
    listed = await editor.ask("session/list", cwd=str(workspace))
    assert len(listed["sessions"]) == 1, "no fork is left"
    await editor.ask(method, sessionId=session_id, cwd=str(link), mcpServers=[])


async def test_a_resumed_session_shows_nothing_and_goes_on(
    editor: Editor, daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    session_id = await played(editor, daemon, workspace)
    async with an_editor(daemon, nursery) as other:
        await other.ask("session/resume", sessionId=session_id, cwd=str(workspace))
        assert [one for one in other.updates() if "message" in one["sessionUpdate"]] == []
        await other.prompt(session_id, "again")
        assert other.said() == "more"


async def test_a_session_joined_during_a_turn_is_followed_to_its_end(
    editor: Editor, daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    gate = Gate(workspace)
    session_id = await editor.new(workspace)
    model = daemon.script(
        calls(CallPart("write", arguments={"path": "a", "content": "a"})),
        calls(bash(gate.command)),
        text("done"),
    )
    option = {"configId": "model", "value": model}
    await editor.ask("session/set_config_option", sessionId=session_id, **option)
    number = await editor.request("session/prompt", sessionId=session_id, prompt=words("go"))
    await editor.asked()
    async with an_editor(daemon, nursery) as other:
        other.choose = lambda params: selected("once")
        await other.ask("session/load", sessionId=session_id, cwd=str(workspace), mcpServers=[])
        await other.asked()
        await gate.pass_one()
        await editor.answer(number)
        await other.until_update("agent_message_chunk")
        assert other.said() == "done"


async def test_sessions_are_listed_by_directory_and_page(
    editor: Editor, daemon: Daemon, workspace: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    made = [await editor.new(workspace), await editor.new(workspace), await editor.new(other)]
    listed = await editor.ask("session/list", cwd=str(workspace))
    assert [one["sessionId"] for one in listed["sessions"]] == [made[1], made[0]]
    assert {one["cwd"] for one in listed["sessions"]} == {str(workspace)}
    assert "T" in listed["sessions"][0]["updatedAt"]
    everything = (await editor.ask("session/list"))["sessions"]
    assert made[2] in [one["sessionId"] for one in everything]
    with pytest.raises(RpcError):
        await editor.ask("session/list", cursor="nonsense")


async def test_a_fork_shares_the_conversation(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    session_id = await played(editor, daemon, workspace)
    forked = await editor.ask("session/fork", sessionId=session_id, cwd=str(workspace))
    assert forked["sessionId"] != session_id
    await editor.prompt(forked["sessionId"], "instead")
    items = daemon.requests(forked["sessionId"])[-1].items
    assert said_in(items) == ["the question", "instead"]
    assert said_in(daemon.requests(session_id)[-1].items) == ["the question"]


async def test_closing_a_session_ends_its_turn_and_keeps_it(
    editor: Editor, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    session_id = await editor.new(workspace)
    option = {"configId": "model", "value": daemon.script(hang("so"))}
    await editor.ask("session/set_config_option", sessionId=session_id, **option)
    frontend.follow(session_id)
    number = await editor.request("session/prompt", sessionId=session_id, prompt=words("one"))
    await editor.until_update("agent_message_chunk")
    await editor.ask("session/close", sessionId=session_id)
    assert (await editor.answer(number))["stopReason"] == "cancelled"
    assert (await frontend.turn_ended(session_id)).outcome == "interrupted"
    with pytest.raises(RpcError, match="not open here") as raised:
        await editor.prompt(session_id)
    assert raised.value.code == -32002
    await editor.ask("session/resume", sessionId=session_id, cwd=str(workspace))
    assert (await frontend.snapshot(session_id)).turns == 1


async def test_a_deleted_session_is_gone(editor: Editor, workspace: Path) -> None:
    session_id = await editor.new(workspace)
    await editor.ask("session/delete", sessionId=session_id)
    with pytest.raises(RpcError) as raised:
        await editor.ask("session/load", sessionId=session_id, cwd=str(workspace), mcpServers=[])
    assert raised.value.code == -32002


async def test_what_a_session_can_not_do_now_is_no_fault_of_the_daemon(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    session_id = await played(editor, daemon, workspace)
    await editor.ask("session/fork", sessionId=session_id, cwd=str(workspace))
    running = await editor.new(workspace)
    option = {"configId": "model", "value": daemon.script(hang("so"))}
    await editor.ask("session/set_config_option", sessionId=running, **option)
    await editor.request("session/prompt", sessionId=running, prompt=words("go"))
    await editor.until_update("agent_message_chunk", content={"type": "text", "text": "so"})
    edit = {"inputId": "none", "action": "remove"}
    for method, params, code in (
        ("session/delete", {"sessionId": session_id}, -32600),
        ("session/delete", {"sessionId": running}, -32600),
        ("_tiller/steer", {"sessionId": session_id, "prompt": words("left")}, -32600),
        ("_tiller/queue_edit", {"sessionId": session_id, **edit}, -32002),
    ):
        with pytest.raises(RpcError) as raised:
            await editor.ask(method, **params)
        assert raised.value.code == code, (method, raised.value.message)


async def test_modes_and_options_change_the_next_turn(
    editor: Editor, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    session_id = await editor.new(workspace)

    async def choose(option: str, value: str) -> Json:
        change = {"configId": option, "value": value}
        result = await editor.ask("session/set_config_option", sessionId=session_id, **change)
        return {one["id"]: one for one in result["configOptions"]}

    options = await choose("approve", "never")
    assert options["approve"]["currentValue"] == "never"
    assert [options[name].get("category") for name in ("agent", "model")] == ["mode", "model"]
    await editor.ask("session/set_mode", sessionId=session_id, modeId="plan")
    options = await choose("approve", ":default")
    assert options["agent"]["currentValue"] == "plan"
    assert options["approve"]["currentValue"] == ":default"
    settings = (await frontend.snapshot(session_id)).settings
    assert (settings.agent, settings.approve) == ("plan", None)
    for option, value in (("approve", "maybe"), ("colour", "red"), ("agent", "nobody")):
        with pytest.raises(RpcError) as raised:
            await choose(option, value)
        assert raised.value.code == -32602


async def test_a_variant_is_offered_where_the_model_has_some(
    nursery: trio.Nursery, new_daemon: Callable[..., Daemon], workspace: Path
) -> None:
    config = CONFIG + '\n[models."scripted/main".variants.high]\noptions = {}\n'
    daemon = new_daemon(config)
    daemon.start()
    daemon.play("main", text("hi"))
    async with an_editor(daemon, nursery) as editor:
        made = await editor.ask("session/new", cwd=str(workspace), mcpServers=[])
        [variant] = [one for one in made["configOptions"] if one["id"] == "variant"]
        assert variant["category"] == "thought_level"
        assert [one["value"] for one in variant["options"]] == [":default", "high"]


async def test_commands_of_the_user_are_offered(
    editor: Editor, daemon: Daemon, workspace: Path
) -> None:
    commands = daemon.places.config / "commands"
    commands.mkdir(exist_ok=True)
    (commands / "review.md").write_text("---\ndescription: Review it\n---\nReview $ARGUMENTS")
    session_id = await editor.new(workspace)
    shown = await editor.until_update("available_commands_update")
    [command] = shown["availableCommands"]
    assert (command["name"], command["description"]) == ("review", "Review it")
    option = {"configId": "model", "value": daemon.script(text("done"), text("done"))}
    await editor.ask("session/set_config_option", sessionId=session_id, **option)
    await editor.prompt(session_id, "/review a.py")
    assert said_in(daemon.requests(session_id)[0].items) == ["Review a.py"]
    (commands / "review.md").unlink()
    await editor.prompt(session_id, "again")
    await editor.until_update("available_commands_update", availableCommands=[])


async def test_additional_directories_may_be_read(
    editor: Editor, daemon: Daemon, frontend: Frontend, workspace: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other [*]"
    other.mkdir()
    (other / "a.txt").write_text("elsewhere")
    session_id = await editor.new(workspace, additionalDirectories=[str(other)])
    option = {"configId": "model"}
    model = daemon.script(calls(read(str(other / "a.txt"))), text("done"))
    await editor.ask("session/set_config_option", sessionId=session_id, **option, value=model)
    await editor.prompt(session_id)
    done = await editor.until_update("tool_call_update", status="completed")
    assert "elsewhere" in done["rawOutput"]["output"]
    again = {"sessionId": session_id, "cwd": str(workspace), "mcpServers": []}
    await editor.ask("session/resume", **again, additionalDirectories=[str(other)])
    rules = await frontend.must(RulesList(session_id=session_id))
    assert isinstance(rules, RulesResult)
    assert len(rules.rules) == 2
    with pytest.raises(RpcError, match="not an absolute path"):
        await editor.new(workspace, additionalDirectories=["other"])


@pytest.fixture
def restarted(daemon: Daemon) -> Daemon:
    """The daemon, which the test starts again."""
    if daemon.process is None:
        daemon.start()
    return daemon


@pytest.mark.parametrize("kill", [True, False])
async def test_a_turn_goes_on_after_a_restart_of_the_daemon(
    nursery: trio.Nursery, restarted: Daemon, workspace: Path, *, kill: bool
) -> None:
    daemon = restarted
    gate = Gate(workspace)
    # A call that may write begins when it is in the log, and so is not made again.
    command = bash(f"{gate.command}; touch x")
    daemon.play("main", calls(command), text("after all"), text("and on"))
    async with an_editor(daemon, nursery, "--approve", "always") as editor:
        session_id = await editor.new(workspace)
        number = await editor.request("session/prompt", sessionId=session_id, prompt=words("go"))
        await gate.reached()
        if kill:
            daemon.restart()
        else:
            await daemon.terminate()
            daemon.start()
        gate.close()
        with pytest.raises(RpcError, match="this turn") as raised:
            await editor.answer(number)
        assert raised.value.data == {"code": "daemon_stopped" if kill else "shutting_down"}
        again = await editor.prompt(session_id, "again")
        assert again["stopReason"] == "end_turn"
        calls_shown = [one["toolCallId"] for one in editor.updates("tool_call")]
        assert len(calls_shown) == len(set(calls_shown)), "nothing is shown twice"


async def test_an_idle_editor_leaves_a_stopped_daemon_alone(
    nursery: trio.Nursery, restarted: Daemon, workspace: Path
) -> None:
    daemon = restarted
    daemon.play("main", text("one"), text("two"))
    async with an_editor(daemon, nursery) as editor:
        session_id = await editor.new(workspace)
        await editor.prompt(session_id)
        await daemon.terminate()
        daemon.start()  # which fails if another one is running
        assert (await editor.prompt(session_id, "again"))["stopReason"] == "end_turn"


async def test_the_end_of_a_turn_that_is_seen_late_starts_no_stopped_daemon(
    nursery: trio.Nursery, restarted: Daemon, workspace: Path
) -> None:
    daemon = restarted
    gate = Gate(workspace)
    daemon.play("main", calls(bash(gate.command)), text("done"))
    terminal = await Frontend.connect(daemon, nursery)
    async with an_editor(daemon, nursery, "--approve", "always") as editor:
        session_id = await editor.new(workspace)
        terminal.follow(session_id)
        prompt = {"sessionId": session_id, "prompt": words("go")}
        number = await editor.request("session/prompt", **prompt)
        await gate.reached()
        editor.process.send_signal(signal.SIGSTOP)
        gate.open()
        await terminal.until_body(session_id, TurnEnded)
        await terminal.close()
        await daemon.terminate()
        editor.process.send_signal(signal.SIGCONT)
        assert (await editor.answer(number))["stopReason"] == "end_turn"
        with pytest.raises(RpcError):  # answered when everything that follows the end was done
            await editor.ask("no_such_method")
        daemon.start()  # which fails if another one is running


async def test_a_terminal_and_an_editor_see_the_same_requests(
    editor: Editor, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    session_id = await editor.new(workspace)
    frontend.follow(session_id)
    write = CallPart("write", arguments={"path": "a", "content": "a"})
    option = {"configId": "model", "value": daemon.script(calls(write), text("done"))}
    await editor.ask("session/set_config_option", sessionId=session_id, **option)
    editor.choose = lambda params: selected("once")
    await editor.prompt(session_id)
    opened = await frontend.until_body(session_id, RequestOpened)
    assert isinstance(opened.body, RequestOpened)
    asked = (await editor.asked())["params"]
    assert asked["toolCall"]["toolCallId"] == opened.body.request.item_id


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"{", -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (b'{"jsonrpc":"2.0","id":[],"method":"x"}', -32600),
        (b"[" * 100_000, -32600),
    ],
)
async def test_what_is_no_message_is_refused_and_the_next_one_works(
    editor: Editor, sent: bytes, code: int
) -> None:
    await editor.send_bytes(sent + b"\n\r\n")
    refused = await editor.until(lambda one: "error" in one)
    assert (refused["id"], refused["error"]["code"]) == (None, code)
    assert await editor.ask("session/list")


async def test_a_message_that_is_too_long_is_refused(editor: Editor) -> None:
    await editor.send_bytes(b" " * (32 * 1024 * 1024 + 1) + b"{}\n")
    refused = await editor.until(lambda one: "error" in one)
    assert "longer than" in refused["error"]["message"]
    assert await editor.ask("session/list")


async def test_unknown_methods_and_parameters_are_errors(editor: Editor, workspace: Path) -> None:
    for method, params, code in (
        ("session/dance", {}, -32601),
        ("session/new", {}, -32602),
        ("session/new", {"cwd": "relative", "mcpServers": []}, -32602),
        ("session/new", {"cwd": str(workspace / "none"), "mcpServers": []}, None),
        ("session/prompt", {"sessionId": "none", "prompt": []}, -32002),
        ("session/load", {"sessionId": "", "cwd": "/", "mcpServers": []}, None),
    ):
        with pytest.raises(RpcError) as raised:
            await editor.ask(method, **params)
        assert code in (None, raised.value.code), (method, raised.value.message)
    await editor.notify("session/cancel", sessionId="none")
    await editor.notify("_someone/else")
    assert await editor.ask("session/list")


async def test_nothing_works_before_the_greeting(
    daemon: Daemon, nursery: trio.Nursery, workspace: Path
) -> None:
    async with an_editor(daemon, nursery, greets=False) as editor:
        with pytest.raises(RpcError, match="before initialize"):
            await editor.new(workspace)


async def test_it_ends_when_the_editor_leaves_and_the_turn_goes_on(
    editor: Editor, daemon: Daemon, frontend: Frontend, workspace: Path
) -> None:
    gate = Gate(workspace)
    session_id = await editor.new(workspace)
    frontend.follow(session_id)
    model = daemon.script(calls(bash(gate.command)), text("done"))
    option = {"configId": "model", "value": model}
    await editor.ask("session/set_config_option", sessionId=session_id, **option)
    await editor.request("session/prompt", sessionId=session_id, prompt=words("go"))
    await gate.reached()
    assert await editor.leave() == 0
    gate.open()
    assert (await frontend.turn_ended(session_id)).outcome == "completed"


async def test_every_line_is_a_message(editor: Editor, daemon: Daemon, workspace: Path) -> None:
    session_id = await editor.new(workspace)
    model = daemon.script(text("one\ntwo\u2028three\x1b[31m"))
    option = {"configId": "model", "value": model}
    await editor.ask("session/set_config_option", sessionId=session_id, **option)
    await editor.prompt(session_id)
    assert editor.said() == "one\ntwo\u2028three\x1b[31m"
    assert all(message["jsonrpc"] == "2.0" for message in editor.seen)
    assert json.dumps(editor.seen)
