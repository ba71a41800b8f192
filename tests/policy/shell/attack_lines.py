"""Lines of an attack that ran unasked as reading and did more, with what holds each of them now.

Their files are those of `support.jail`: `tests/e2e/test_unasked_lines.py` runs them there.
"""

from typing import Literal, NamedTuple

Holds = Literal["asks", "writes nothing", "sees the workspace only", "hides secrets", "runs inside"]
"""A question; or the read-only sandbox, and what of it."""


class Attack(NamedTuple):
    """A line, and what holds it."""

    holds: Holds
    text: str


ATTACKS = (
    Attack("writes nothing", "echo 'echo x >made' | xargs -I{} -Ils sh -c ls"),
    Attack("asks", "echo x | xargs --max-lines touch echo"),
    Attack("writes nothing", "bash -n +n <<< 'echo x >made'"),
    Attack("writes nothing", 'awk \'/"/{print "x" > "made"}\' file'),
    Attack("writes nothing", "awk 'BEGIN{system(\"echo x >made\")}'"),
    Attack("writes nothing", "sh -c 'ls; [[ -f x || touch == P ]]'"),
    Attack("asks", "ls >&１"),  # noqa: RUF001 - a Unicode digit names a file
    Attack("writes nothing", "find 'BEGIN{system(\"echo x >made\")}' -exec awk {} \\;"),
    Attack("writes nothing", "find . -name file -fprint made"),
    Attack("writes nothing", "sort -o made file"),
    Attack("writes nothing", "sed -n 'w made' file"),
    Attack("runs inside", "cd nested && bash -c 'git status'"),
    Attack("runs inside", "command cd nested; git status"),
    Attack("runs inside", "time cd nested; git status"),
    Attack("runs inside", "find nested -execdir git status \\;"),
    Attack("runs inside", "git -C nested status"),
    Attack("runs inside", "git -C link status"),
    Attack("runs inside", "git status"),
    Attack("runs inside", "git log --alternate-refs"),
    Attack("runs inside", "git show --remerge-diff"),
    Attack("runs inside", "git -c diff.submodule=diff diff"),
    Attack("runs inside", "env -i git log"),
    Attack("runs inside", "git -c core.pager='echo x >made' -p log"),
    Attack("runs inside", "git -c core.fsmonitor='echo x >made;' status"),
    Attack("asks", "git push; echo 'id>~/x' | xargs -d '\\n' -I{} -Ils sh -c ls"),
    Attack("asks", "git push; [ -v 'a[$(id)]' ]"),
    Attack("asks", "git push; test -v 'a[$(id)]'"),
    Attack("asks", "git push; cat .env"),
    Attack("asks", "git push; cat < .env"),
    Attack("asks", "git push; echo $(< .env)"),
    Attack("asks", "git push <<'E' --receive-pack=x\nE"),
    Attack("asks", "a|a | git push\nrm -rf file\nls >/dev/null"),
    Attack("asks", "'git push /../../evil'"),
    Attack("hides secrets", "cat .*"),
    Attack("hides secrets", "bash -c cat < .env"),
    Attack("hides secrets", "grep --reg=. .env"),
    Attack("hides secrets", "wc --files0-from=.env"),
    Attack("hides secrets", "file -f .env"),
    Attack("hides secrets", "cat ~/.ssh/id"),
    Attack("hides secrets", "grep -r . ."),
    Attack("sees the workspace only", "cd; cat .bash_history"),
    Attack("sees the workspace only", "cat ~+/../other/notes"),
    Attack("sees the workspace only", "cat l*k/notes"),
    Attack("sees the workspace only", "grep -R . ."),
    Attack("sees the workspace only", "find -L . -type f -exec cat {} +"),
    Attack("sees the workspace only", "awk 'BEGIN{ARGV[1]=\"../other/notes\"; ARGC=2} 1'"),
    Attack("sees the workspace only", 'jq -n \'import "notes" as $x {search: "../other"}; $x\''),
)
