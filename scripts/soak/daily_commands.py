"""Runs what agents run all day in real repositories, and counts needless questions and failures.

A real daemon with its default configuration runs every command in turn, and every request is
answered with `once`. A question is needless if the line only reads or builds, if it is the second
one about the line, or if it is about leaving the sandbox. Each repository gets the commands for all
and those for the files at its top. The commands change the repositories, so give this script copies
whose upstream is a bare repository beside them. Commands run with your own home.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("tests", "daemon", "protocol", "client")]

import trio  # noqa: E402

from e2e.words import bash, calls, text  # noqa: E402 - found there
from support import frontend as frontends  # noqa: E402
from support.daemon import CONFIG, Daemon  # noqa: E402
from support.frontend import Frontend  # noqa: E402
from tiller_protocol.events import Event, RequestOpened, TurnEnded, WarningRaised  # noqa: E402
from tiller_protocol.items import Request, ToolCall  # noqa: E402
from tiller_protocol.ops import Answer  # noqa: E402

DEFAULT = CONFIG.replace('sandbox = { mode = "full_access" }\n', "")
COMMAND_S = 600.0
"""Longest wait for one command; builds of real projects take minutes on a busy machine."""

WIDTH, TITLE_WIDTH, OUTPUT_LINES = 60, 150, 12

# A line is a sign and a command: `?` needs a question, `&` needs one and runs in the background,
# `.` needs none. BASE is the branch, README a tracked file, and ␤ begins a new line.
READS = """
. ls -la
. cat README | head -n 20
. sed -n 1,20p README
. head -5 README && tail -3 README && wc -l README
. rg -n TODO | head -5
. rg --files | wc -l
. grep -rn the --include='*.md' . | head -3
. find . -name '*.md' -not -path '*/node_modules/*' | sort | head
. git status
. git status --short --branch && git stash list
. git log --oneline -5 | cat
. git diff && git diff --stat HEAD~1
. git show --stat HEAD
. git blame -L1,3 README
. git branch -a && git remote -v && git worktree list && git tag | tail -3
. git grep -n the | head -3; git ls-files | wc -l; git rev-parse HEAD
. git log -p -1 -- README | head -20
. git diff BASE...HEAD
. git reflog | head -3
"""
WRITES = """
? mkdir -p scratch/a && touch scratch/a/empty
? cat > scratch/run.sh <<'EOF'␤#!/bin/sh␤echo "ran in $(pwd)"␤EOF
? chmod +x scratch/run.sh && ./scratch/run.sh
? cp scratch/run.sh scratch/b.sh && mv scratch/b.sh scratch/c.sh && rm scratch/c.sh
? sed -i 's/ran/did run/' scratch/run.sh
? tar czf scratch.tgz scratch && mkdir -p out && tar xzf scratch.tgz -C out && rm -r out scratch.tgz
? python3 -c "import json, pathlib; pathlib.Path('scratch/x.json').write_text(json.dumps([1]))"
? python3 - <<'EOF'␤import os␤print(sorted(os.listdir('.'))[:3])␤EOF
? node -e "require('fs').writeFileSync('scratch/y.txt', 'y')"
? echo '# scratch' >> .gitignore
? printf 'A=1\\n' > .env.example && printf 'root = true\\n' > .editorconfig
? mkdir -p .github/workflows && echo 'on: push' > .github/workflows/soak.yml
. bash -n scratch/run.sh && cat scratch/run.sh
. git diff --stat && git status --porcelain
"""
COMMITS = """
? git switch -c topic
? git add -A && git commit -m "Add scratch files"
? echo two >> scratch/a/two.txt
? cd scratch && git add -A && git commit -m "$(cat <<'EOF'␤Add two␤␤With a body.␤EOF␤)"
? echo three >> scratch/a/two.txt && git commit -am "Add three" && git commit --amend --no-edit
? echo four >> scratch/a/two.txt
? git stash
? git stash pop
? git restore scratch/a/two.txt
? git checkout BASE
? git checkout -b side && echo side > side.txt && git add side.txt && git commit -qm "Add side"
? git merge --no-edit topic
? git switch topic && git rebase side
? git switch -c picks BASE && git cherry-pick side~1
? git reset --soft HEAD~1 && git reset && git checkout -- . && git clean -fdq scratch
? git tag soak && git tag -d soak
? git tag -a soak-2 -m "A tag"
? git branch -D picks; git switch topic && git branch -D picks
? git revert --no-edit HEAD
? GIT_SEQUENCE_EDITOR=true git rebase -i HEAD~2
? git mv side.txt other.txt && git rm -q other.txt -f && git commit -qm "Remove side"
? git format-patch -1 -o scratch && git apply -R scratch/*.patch && git apply scratch/*.patch
? git fetch
? git push -u origin topic
? git switch BASE && git pull --ff-only
? git merge --no-ff -m "Merge topic" topic && git push
? git worktree add scratch-tree topic
? cd scratch-tree && echo wt > wt.txt && git add wt.txt && git commit -qm "In a worktree"
. git -C scratch-tree log --oneline -2
? git worktree remove scratch-tree
? git clone -q . scratch-clone && rm -rf scratch-clone
? mkdir scratch-new && cd scratch-new && git init -q && git add -A && cd .. && rm -rf scratch-new
? git config user.name
? git config core.ignoreCase false
. git fsck --no-dangling 2>&1 | tail -3
"""
SERVERS = """
& python3 -m http.server 8199 --bind 127.0.0.1
? sleep 1; curl -sf --retry 3 --retry-connrefused http://127.0.0.1:8199/ | head -3
? python3 -m http.server 8198 >/dev/null 2>&1 & sleep 1; curl -sf http://localhost:8198/ | wc -l
"""
BY_FILE = {
    "pyproject.toml": """
. .venv/bin/pytest -q 2>&1 | tail -5
. .venv/bin/python -m pytest -x -q -p no:cacheprovider
? source .venv/bin/activate && pytest -q
. .venv/bin/ruff check --exit-zero . && .venv/bin/ruff format --diff src | head -5; true
? .venv/bin/ruff format .
? .venv/bin/ruff check --fix --exit-zero .
. .venv/bin/mypy src --ignore-missing-imports | tail -1
. .venv/bin/pip list && .venv/bin/pip show pytest
? .venv/bin/pip install -q -e . --no-build-isolation --no-deps
? .venv/bin/pip install -q six && .venv/bin/python -c "import six; print(six.__version__)"
? python3 -m venv .venv2 && .venv2/bin/python -V && rm -r .venv2
? rm -rf build dist src/*.egg-info && find . -name __pycache__ -not -path './.venv/*' | xargs rm -rf
""",
    "package.json": """
? npm ci --no-audit --no-fund
. npm test
. npm run build
. npm run lint && npm run typecheck
. npx tsc --noEmit
. npx eslint . && npx prettier --check src; true
? npx prettier --write src
? npx eslint --fix .
. npx vitest run --coverage=false
? npx vite build
. npm ls --depth=0 && npm run
? npm install --no-audit --no-fund -D is-number
& npm run dev
? sleep 3; curl -sf --retry 3 --retry-connrefused http://localhost:5199/ | head -3
? (npx vite --port 5198 >/dev/null 2>&1 &) ; sleep 4; curl -sf http://localhost:5198/ | wc -l
""",
    "Cargo.toml": """
. cargo build 2>&1 | tail -3
. cargo test -q 2>&1 | tail -5
. cargo clippy -q
. cargo fmt --check; cargo metadata --no-deps --format-version 1 | head -c 80
. cargo check --all-targets && cargo doc --no-deps
. cargo tree
? cargo fmt
? cargo clean
. cargo build --release
""",
    "go.mod": """
. go build ./...
. go test ./...
. go vet ./... && gofmt -l . && go list ./...
? gofmt -w .
? go mod tidy
? go generate ./... && go run ./nothing || true
""",
    "Makefile": """
. make
. make test
. make -n all | head -3
? make clean
. make -j2 all 2>&1 | tail -3
""",
    "CMakeLists.txt": """
. cmake -S . -B build -DENABLE_CJSON_TEST=On
. cmake --build build -j2
. ctest --test-dir build 2>&1 | tail -3
? mkdir -p build2 && cd build2 && cmake .. && make -j2
? cmake --install build --prefix "$PWD/prefix" && ls prefix
? make install PREFIX="$PWD/prefix2" && find prefix2 -type f | head -3
? gcc -shared -fPIC -o scratch.so cJSON.c && rm scratch.so
? rm -rf build build2 prefix prefix2
""",
    ".gitmodules": """
. git submodule status
. git -C libs/sds log --oneline -3 && cd libs/cJSON && git status
? git submodule update --init --recursive
? git -C libs/sds switch -c work && echo '/* soak */' >> libs/sds/sds.c
? cd libs/sds && git commit -am "In a submodule"
. git diff --submodule=log && git submodule summary
? git add libs/sds && git commit -m "Update sds"
? git submodule foreach git status -s
? git submodule update
""",
    ".pre-commit-config.yaml": """
? .venv/bin/pre-commit run --all-files
? sed -i 's/^/# soak␤/;1q' .pre-commit-config.yaml; git checkout .pre-commit-config.yaml
""",
}


class Outcome(NamedTuple):
    """A command, the questions about it, and its end."""

    sign: str
    command: str
    asked: tuple[Request, ...]
    call: ToolCall
    warnings: tuple[str, ...]

    @property
    def needless(self) -> int:
        """How many of the questions should not have been asked."""
        needed = self.sign != "." and any(one.permission != "unsandboxed" for one in self.asked)
        return len(self.asked) - needed

    @property
    def failed(self) -> bool:
        """Whether the command ended otherwise than with success, or was not started."""
        return self.call.state != "completed" or self.call.exit_status not in (0, None)

    @property
    def notes(self) -> str:
        """What else happened: it ran again, or something was put aside."""
        found = ("ran again" in self.call.output and "again", *self.warnings)
        return " ".join(note for note in found if note)


def commands_for(workspace: Path) -> Iterator[tuple[str, str]]:
    """Yield the sign and text of each command for a repository."""
    listed = subprocess.run(
        ("git", "ls-files"), cwd=workspace, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    branch = subprocess.run(
        ("git", "branch", "--show-current"), cwd=workspace, capture_output=True, text=True
    ).stdout.strip()
    readme = next((name for name in listed if name.startswith("README")), listed[0])
    kinds = [lines for name, lines in BY_FILE.items() if (workspace / name).exists()]
    for line in "".join((READS, *kinds, WRITES, COMMITS, SERVERS)).splitlines():
        if line:
            command = line[2:].replace("BASE", branch).replace("README", readme)
            yield line[0], command.replace("␤", "\n")


async def run_all(frontend: Frontend, workspace: Path, only: str) -> list[Outcome]:
    """Run the commands for a repository, each in its own turn of one session."""
    chosen = [(sign, line) for sign, line in commands_for(workspace) if only in line]
    steps = [
        step
        for sign, line in chosen
        for step in (calls(bash(line, background=sign == "&")), text("done"))
    ]
    session_id = await frontend.session(workspace, *steps, approve="ask")
    outcomes: list[Outcome] = []
    for number, (sign, line) in enumerate(chosen, 1):
        began = len(frontend.events(session_id))
        await frontend.say(session_id)
        asked = await answer_all(frontend, session_id, began)
        await frontend.turn_ended(session_id, number)
        bodies = [event.body for event in frontend.events(session_id)[began:]]
        warnings = tuple(one.code for one in bodies if isinstance(one, WarningRaised))
        call = frontend.completed_calls(session_id)[-1]
        outcomes.append(Outcome(sign, line, asked, call, warnings))
    return outcomes


async def answer_all(frontend: Frontend, session_id: str, began: int) -> tuple[Request, ...]:
    """Answer requests with `once` until the turn ends; return the requests."""
    asked: dict[str, Request] = {}

    def is_next(event: Event) -> bool:
        body = event.body
        is_new = isinstance(body, RequestOpened) and body.request.id not in asked
        return event.seq > began and (is_new or isinstance(body, TurnEnded))

    while True:
        body = (await frontend.until(session_id, is_next)).body
        if not isinstance(body, RequestOpened):
            return tuple(asked.values())
        asked[body.request.id] = body.request
        await frontend.must(Answer(body.request.id, "once"))


def show(name: str, outcomes: list[Outcome], *, all_of_them: bool) -> None:
    """Print the outcomes of a repository: by default only failures and needless questions."""
    for one in outcomes:
        if not (all_of_them or one.failed or one.needless or one.warnings):
            continue
        line = " ".join(one.command.split())[:WIDTH]
        marks = f"{'FAILED ' * one.failed}{'NEEDLESS ' * bool(one.needless)}{one.notes}"
        print(f"  {one.sign} {one.call.exit_status!s:>4} {len(one.asked)} {line:{WIDTH}} {marks}")
        for request in one.asked:
            print(f"         {request.permission}: {request.title[:TITLE_WIDTH]}")
        if one.failed or one.warnings:
            output = one.call.output.splitlines()[-OUTPUT_LINES:]
            print(*(f"         | {text}" for text in output), sep="\n")
    needed = sum(len(one.asked) - one.needless for one in outcomes)
    needless = sum(one.needless for one in outcomes)
    failed = sum(one.failed for one in outcomes)
    print(f"{name}: {len(outcomes)} commands, {needed} needed questions,", end=" ")
    print(f"{needless} needless, {failed} failed", flush=True)


async def measure(workspaces: list[Path], only: str, *, all_of_them: bool) -> None:
    """Run the commands for each repository and print what happened."""
    total: list[Outcome] = []
    with tempfile.TemporaryDirectory() as home:
        daemon = Daemon(Path(home), DEFAULT)
        daemon.variables["HOME"] = os.environ["HOME"]
        async with trio.open_nursery() as nursery:
            with daemon:
                frontend = await Frontend.connect(daemon, nursery)
                for workspace in workspaces:
                    outcomes = await run_all(frontend, workspace, only)
                    show(workspace.name, outcomes, all_of_them=all_of_them)
                    total += outcomes
                await frontend.disconnect()
            print(*daemon.crashes, sep="\n")
    asked = sum(len(one.asked) for one in total)
    needless = sum(one.needless for one in total)
    texts = len({one.command for one in total})
    print(f"{len(total)} commands, {texts} of them different: {asked} questions,", end=" ")
    print(f"{needless} = {needless / max(asked, 1):.1%} of them needless,", end=" ")
    print(f"{sum(one.failed for one in total)} failed")


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", nargs="+", type=Path, help="a workspace that may be changed")
    parser.add_argument("--only", default="", help="run only commands that contain this text")
    parser.add_argument("--all", action="store_true", help="print every command")
    arguments = parser.parse_args()
    frontends.TIMEOUT_S = COMMAND_S
    workspaces = [path.resolve() for path in arguments.repository]
    trio.run(partial(measure, workspaces, arguments.only, all_of_them=arguments.all))


if __name__ == "__main__":
    main()
