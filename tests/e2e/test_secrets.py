"""Keys stay in the process (G13), and only the owner has access (G14); over real sockets."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

from e2e.provider import called, check_all, config_for, said
from e2e.words import always, bash, calls, read
from support.daemon import CONFIG, Daemon
from support.frontend import Frontend
from support.http_server import serving, status
from tiller_daemon.models.scripted import CallPart
from tiller_protocol.codec import encode_event
from tiller_protocol.ops import Catalog, DaemonStatus
from tiller_protocol.places import EVENTS_SOCKET, LOG_FILE, OPS_SOCKET, TOKEN_FILE

KEY = "sk-canary-0123456789abcdef"
HEADER = "canary-of-a-header-0123456789"
PASSWORD = "canary-of-a-password-0123456789"
TOKEN = "ghp_canary-of-a-token-0123456789"
CANARIES = (KEY, HEADER, PASSWORD)

SECRETS = {
    "HTTPS_PROXY": f"http://me:{PASSWORD}@127.0.0.1:9",
    "DATABASE_URL": f"postgres://me:{PASSWORD}@db/x",
    **dict.fromkeys(("MYSQL_PWD", "SSHPASS", "CI_JOB_JWT", "BW_SESSION", "LDAP_BIND_PW"), PASSWORD),
}
"""Variables that no configuration mentions."""

PRY = """
echo found:${{CANARY_KEY:-nothing}}:${{CURL_OPTIONS:-nothing}}
env
cat /proc/self/environ /proc/$PPID/environ | tr '\\0' '\\n'
cat /proc/$PPID/cmdline {config}
seq 30000
env
"""
"""Prints all that a command can reach. The output is so long that it needs a spill file."""


def _files_below(place: Path) -> Iterator[Path]:
    for path in place.rglob("*"):
        if stat.S_ISREG(path.lstat().st_mode):
            yield path


@pytest.mark.promise("G13")
async def test_keys_reach_the_provider_and_nothing_else(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery
) -> None:
    """Canaries in environment and header → not in the log's bytes, events, answers, output, spill.

    A command does not find the keys in its environment. Keys that it finds elsewhere are removed
    from its output. If a server repeats keys in an error, the error is not quoted.
    """
    error = {"error": {"message": f"wrong key {KEY}, and what is {HEADER}?"}}
    answers = (called(("bash", {"command": "PRY"})), said("Seen."), status(400, error), said("ok"))
    async with serving(*answers) as server:
        api = 'api = "openai_chat"\n'
        keys = f'api_key_env = "CANARY_KEY"\nheaders = {{ X-Auth-Token = "{HEADER}" }}\n'
        config = config_for(server.base_url).replace(api, api + keys)
        config = f'env_keep = ["PLAIN", "CURL_*"]\n{config}'
        daemon = new_daemon(config)
        pry = PRY.format(config=daemon.places.config / "config.toml")
        server.answers[0] = called(("bash", {"command": pry}))
        daemon.start(CANARY_KEY=KEY, CURL_OPTIONS=f"-H 'X: {KEY}'", PLAIN="is seen", **SECRETS)
        frontend = await Frontend.connect(daemon, nursery)
        session_id = await frontend.session(workspace, model="local/m")
        for number, outcome in ((1, "completed"), (2, "failed"), (3, "completed")):
            await frontend.say(session_id)
            assert (await frontend.turn_ended(session_id, number)).outcome == outcome
        first, *_ = check_all(server)
        assert first.headers["authorization"] == f"Bearer {KEY}"
        assert first.headers["x-auth-token"] == HEADER
        (call,) = frontend.completed_calls(session_id)
        spilled = await trio.Path(call.spill_path).read_text()
        assert spilled.startswith("found:nothing:nothing\n")
        assert spilled.count("PLAIN=is seen") >= 3, "the command did not show its environment"
        assert "HTTPS_PROXY=http://127.0.0.1:9\n" in spilled
        heard = {
            "events": b"".join(encode_event(e) for e in await frontend.log(session_id)),
            "spill": spilled.encode(),
            "status": repr(await frontend.must(DaemonStatus())).encode(),
            "catalog": repr(await frontend.must(Catalog(str(workspace)))).encode(),
            "bodies": b"".join(received.data for received in server.received),
        }
        await frontend.close()
    await daemon.terminate()
    heard["output"] = daemon.said.encode()
    files = [*_files_below(daemon.places.state), *_files_below(daemon.places.runtime)]
    assert daemon.places.state / LOG_FILE in files
    heard |= {str(path): path.read_bytes() for path in files}
    leaks = [(name, c) for name, data in heard.items() for c in CANARIES if c.encode() in data]
    assert leaks == []
    assert b"[secret]" in heard["events"]


async def test_no_tool_shows_the_passwords_in_urls(frontend: Frontend, workspace: Path) -> None:
    """`git remote -v`, files, searches, live output and failures → `[secret]` for the password."""
    url, other = f"https://me:{PASSWORD}@host/a.git", f"https://{TOKEN}@host/b.git"
    (workspace / "notes").write_text(f"{url}\n{'x' * 100}\n" + f"{other} again\n" * 5_000)
    for line in (["init", "-q"], ["remote", "add", "a", url], ["remote", "add", "b", other]):
        await trio.run_process(["git", *line], cwd=workspace)
    password = "$(head -1 notes | cut -c12-42)"
    slow = f"for part in https:/ /me: {password} @host; do printf %s $part; sleep 0.1; done"
    session_id = await frontend.session(
        workspace,
        calls(bash("git remote -v"), bash("git config --list"), bash(slow)),
        calls(read(".git/config"), read("notes"), CallPart("grep", {"pattern": "host"})),
        calls(CallPart("bash", {"command": "cat notes; sleep 60", "background": True})),
        calls(bash(f"echo https://me:{password}@host; exit 3"), bash("cat notes")),
        always("done"),
        approve="always",
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    done = frontend.completed_calls(session_id)
    assert [call.output for call in done if "[secret]@host" not in call.output] == []
    events = b"".join(encode_event(event) for event in await frontend.log(session_id))
    paths = [trio.Path(call.spill_path) for call in done if call.spill_path]
    spilled = [await path.read_bytes() for path in paths]
    assert spilled
    for heard in (events, repr(frontend.requests(session_id)).encode(), *spilled):
        assert b"[secret]@host" in heard
        for secret in (PASSWORD, TOKEN):
            assert secret.encode() not in heard


@pytest.mark.promise("G14")
async def test_only_the_owner_reaches_the_daemon_and_no_port_is_open(
    frontend: Frontend, workspace: Path, daemon: Daemon
) -> None:
    """Runtime directory 0700, token and sockets 0600; no port, and each socket has a path."""
    session_id = await frontend.session(workspace, model=daemon.script())
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    runtime = daemon.places.runtime
    modes = {path.name: path.stat().st_mode & 0o777 for path in runtime.iterdir()}
    assert runtime.stat().st_mode & 0o777 == 0o700
    assert {TOKEN_FILE, OPS_SOCKET, EVENTS_SOCKET} <= set(modes)
    assert set(modes.values()) == {0o600}
    assert daemon.places.state.stat().st_mode & 0o777 == 0o700
    inodes = _socket_inodes(daemon)
    assert inodes
    for table in ("tcp", "tcp6", "udp", "udp6", "udplite", "raw", "raw6"):
        assert not inodes & _inodes_in(table, 9), table
    listening = [line.split() for line in _lines("unix") if line.split()[6] in inodes]
    places = {fields[7] for fields in listening if len(fields) > 7}
    assert places == {str(runtime / OPS_SOCKET), str(runtime / EVENTS_SOCKET)}


@pytest.mark.promise("G13")
async def test_the_model_can_not_read_what_belongs_to_the_daemon(
    frontend: Frontend, workspace: Path
) -> None:
    """Not even if everything is approved; but the model can read the output of its own calls."""
    places = frontend.daemon.places
    own = [str(places.runtime / TOKEN_FILE), str(places.state / LOG_FILE)]
    session_id = await frontend.session(
        workspace, calls(*map(read, own)), always("done"), approve="always"
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    for call in frontend.completed_calls(session_id):
        assert call.error_kind == "denied", call.output


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777, 0o570])
@pytest.mark.promise("G14")
async def test_what_the_daemon_keeps_is_closed_to_others_under_any_umask(
    new_daemon: Callable[..., Daemon], workspace: Path, nursery: trio.Nursery, umask: int
) -> None:
    """The daemon also closes files that were open to others before.

    Only the umask decides about files in the workspace and in the `/tmp` of commands.
    """
    daemon = new_daemon('record = "../t/state/recordings/deep"\n' + CONFIG)
    state = daemon.places.state
    for place in (state, state / "spill", state / "snapshots", state / "journals"):
        place.mkdir()
        place.chmod(0o755)
    for name in ("catalog.json", "trust.json", "daemon.log", LOG_FILE):
        (state / name).touch(0o644)
    daemon.prefix = ("sh", "-c", f'umask {umask:o}; exec "$@"', "sh")
    daemon.start()
    frontend = await Frontend.connect(daemon, nursery)
    patch = "*** Begin Patch\n*** Add File: a/one\n+1\n*** Add File: two\n+2\n*** End Patch"
    session_id = await frontend.session(
        workspace,
        calls(bash("seq 100000")),
        calls(CallPart("apply_patch", arguments={"patch": patch})),
        always("done"),
        approve="always",
    )
    await frontend.say(session_id)
    await frontend.turn_ended(session_id)
    assert [call.state for call in frontend.completed_calls(session_id)] == ["completed"] * 2
    made = [state, *state.rglob("*"), *daemon.places.runtime.rglob("*")]
    of_commands = state / "spill" / session_id / "tmp"
    for path in made:
        if of_commands in path.parents:
            continue
        mode = path.lstat().st_mode
        needed = 0o700 if stat.S_ISDIR(mode) else 0o400
        assert mode & 0o077 == 0, path
        assert mode & needed == needed, path
    names = {str(path.relative_to(daemon.home / "t")) for path in made}
    assert {"state/journals", f"state/{LOG_FILE}-wal", "runtime/token"} <= names
    for begin in ("state/recordings/", f"state/spill/{session_id}/", "state/snapshots/"):
        assert any(name.startswith(begin) for name in names), begin
    assert stat.S_IMODE((workspace / "two").stat().st_mode) == 0o666 & ~umask
    await frontend.close()


def _socket_inodes(daemon: Daemon) -> set[str]:
    assert daemon.process is not None
    descriptors = Path(f"/proc/{daemon.process.pid}/fd")
    targets = [os.readlink(one) for one in descriptors.iterdir()]  # noqa: PTH115 - "socket:[1]"
    return {one.removeprefix("socket:[")[:-1] for one in targets if one.startswith("socket:[")}


def _inodes_in(table: str, column: int) -> set[str]:
    return {line.split()[column] for line in _lines(table)}


def _lines(table: str) -> list[str]:
    """Return the rows of a table in /proc/net; empty if this kernel does not have the table."""
    try:
        return Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    except FileNotFoundError:
        return []
