"""What bash runs, against what was found in a line: of a plain one, no command is missed (B38).

Lines are made of pieces that shells and parsers love to disagree on. Bash runs each with a `PATH`
without programs and reports every command that it looked for.
"""

import os
import random
import re
import shutil
import subprocess
from collections.abc import Sequence

import pytest

from tiller_daemon.policy.shell.command_line import SimpleCommand, parse

BASH = shutil.which("bash")
SEED = int(os.environ.get("TEST_SEED", "20261121"))
ROUNDS = 2_000
BASH_TIMEOUT_S = 5

PIECES = [
    *[
        "aa",
        "bb",
        "cc",
        " ",
        " ",
        " ",
        "\t",
        "\n",
        ";",
        "&",
        "&&",
        "(",
        ")",
        "{ ",
        " }",
        "$(",
        "`",
        "'",
        '"',
        "\\",
        "\\\n",
        "#",
        "<(",
        "<<<",
        "<",
        "2>&1",
        ">/dev/null",
        "!",
    ],
    *(
        "|",
        "||",
        "|&",
        "<<E\n",
        "E\n",
        "<<'E'\n",
        "<<-E\n",
        " if aa; then ",
        " fi",
        "for x in a b;",
    ),
    *(" do ", "; done", "case a in a) ", " esac ", ";;", "$x", "${x}", '"$x"', "x=aa", "x=1 "),
    *("x=bb;", "x=aa && ", "x=$x", " >&2 ", "${x%a}", "${#x}", "$((1+2))"),
    *("$'", "\\'", "{aa,bb}", "=", "-", "[ ", " ]", "[[ ", " ]]", "((", "))", "$((", "f() { "),
    *("function f { ", "eval ", "time ", "exec ", "command ", "env ", "\r", "\f", "\u00a0", "@"),
    *("?", "*", "+(", ">(", "&>/dev/null", "2>", "coproc ", "then", "do", "in", "else"),
]
SCRIPTS = [
    *("(aa; bb)", "{ aa; bb; }", "if aa; then bb; else cc; fi", "for x in $(aa) b; do bb $x; done"),
    *(
        "case $(aa) in bb) cc;; *) dd;; esac",
        "aa <<E\nbb\nE\ncc",
        "aa <(bb)",
        "x=$(aa); bb",
        "! aa",
    ),
    *("aa & bb", "aa # bb\ncc", "time aa", '[ -n "$(aa)" ] && bb', "[[ a == b ]] || cc"),
    *("x=aa; bb $x", "for x in aa bb; do cc $x; done", 'x=aa && bb "$x" cc', "x=aa\nbb ${x}y"),
    *("aa ${x:-bb}", "aa ${x##*/}", "x+=aa; bb $x", "x=aa bb $x", "aa && x=bb; cc $x"),
    *(
        "read x <<E\naa\nE\nbb $x",
        "aa {bb,cc} {1..3}",
        "aa <<< bb",
        "aa |& bb",
        "CI=1 aa",
        "eval aa",
    ),
]
PLAIN_SCRIPTS = [
    *("aa", "aa bb", "aa | bb", "aa && bb || cc", "aa; bb", "aa\nbb", "aa $(bb)", 'aa "x $(bb)"'),
    *("aa <<'E'\nbb\nE\ncc", "aa 2>&1 | bb", "aa \\\nbb", "'aa' bb", "a\\a bb", "aa >&2 bb"),
    *(
        "aa 2>/dev/null",
        "aa >/dev/null 2>&1",
        "env CI=1 aa",
        "exec aa",
        "command aa bb",
        'aa "b c" d',
    ),
    *(
        "aa $x bb",
        'aa "$x"',
        "aa $1 $? b",
        "aa -x --y=z",
        "aa *",
        "aa ?b [c]",
        "aa > f",
        "aa < /dev/null",
    ),
    *(
        "aa $(bb $(cc))",
        "aa 'b;c' \"d | e\"",
        "aa b@c./d:e%f",
        "aa b\\;c",
        "aa 1 2 3",
        "aa \"b'c\" 'd\"e'",
    ),
]
PLAIN_PIECES = [
    *(
        "aa",
        "bb",
        " ",
        "\t",
        "\n",
        ";",
        "&&",
        "||",
        "|",
        "'",
        '"',
        "\\",
        "\\\n",
        "$(",
        ")",
        "$x",
        '"$x"',
    ),
    *(
        "2>&1",
        ">/dev/null",
        " >&2 ",
        "<<'E'\n",
        "\nE\n",
        "-",
        "=",
        "#",
        "@",
        "?",
        "*",
        "b c",
        "1",
        "{}",
    ),
]
IS_ROOT = os.geteuid() == 0
SETPRIV = shutil.which("setpriv")
UNPRIVILEGED = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--") * IS_ROOT
"""A line may redirect into any path, such as a broken `/dev/null`, and root may create it there.
The arguments `user` and `group` of `subprocess` would copy this process, which takes long."""

REPORTING = """
exec 9>&{descriptor}; PATH=/nonexistent
command_not_found_handle() {{ local IFS=$'\\036'; printf '%s\\037' "$*" >&9; return 0; }}
eval "$SCRIPT" 2>/dev/null
"""


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@pytest.mark.skipif(IS_ROOT and SETPRIV is None, reason="root needs setpriv to run lines")
@pytest.mark.nightly
@pytest.mark.promise("B38")
def test_bash_runs_nothing_that_was_not_found_in_a_plain_line(tmp_path):
    judged = 0
    tmp_path.chmod(0o777)
    for number in range(ROUNDS):
        text = _script(random.Random(f"{SEED}-{number}"))
        parsed = parse(text)
        if not parsed.plain:
            continue
        ran = _run(text, tmp_path)
        missed = [words for words in ran if not _is_found(words, parsed.commands)]
        assert not missed, f"TEST_SEED={SEED}, number {number}: {text!r} ran {missed}"
        made = list(tmp_path.iterdir())
        assert parsed.writes or not made, f"TEST_SEED={SEED}, number {number}: {text!r} wrote"
        for path in made:
            path.unlink()
        judged += bool(ran)
    print(f"{judged} of {ROUNDS} lines were plain and ran something")
    assert judged >= ROUNDS // 4


def _script(choose: random.Random) -> str:
    """A line of pieces, or one of scripts with a few changes; most begin as plain ones."""
    plain = choose.random() < 0.7
    pieces, scripts = (PLAIN_PIECES, PLAIN_SCRIPTS) if plain else (PIECES, SCRIPTS + PLAIN_SCRIPTS)
    if choose.random() < 0.2:
        return "".join(choose.choice(pieces) for _ in range(choose.randint(2, 14)))
    joint = choose.choice([";", "\n", " && ", " | ", ""])
    text = joint.join(choose.choice(scripts) for _ in range(choose.randint(1, 3)))
    for _ in range(choose.randint(0, 3)):
        start, end = sorted((choose.randint(0, len(text)), choose.randint(0, len(text))))
        match choose.randint(0, 3):
            case 0 | 1:
                text = text[:start] + choose.choice(pieces) + text[start:]
            case 2:
                text = text[:start] + text[start + choose.randint(1, 3) :]
            case _:
                text = text[:start] + text[start:end] + text[start:]
    return text


def _run(script: str, directory: os.PathLike[str]) -> list[list[str]]:
    """The words of each command that bash looked for and did not find."""
    assert BASH is not None
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as reports:
        try:
            subprocess.run(
                [
                    *UNPRIVILEGED,
                    BASH,
                    "--norc",
                    "--noprofile",
                    "-c",
                    REPORTING.format(descriptor=writer),
                ],
                env={"SCRIPT": script},
                cwd=directory,
                pass_fds=(writer,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=BASH_TIMEOUT_S,
                check=False,
            )
        finally:
            os.close(writer)
        told = reports.read().decode(errors="replace")
    return [report.split("\x1e") for report in told.split("\x1f") if report]


def _is_found(words: list[str], commands: Sequence[SimpleCommand]) -> bool:
    """Whether a command was found, perhaps behind a wrapper such as `command`."""
    found = [one for command in commands for one in (command, *command.inner())]
    return any(_may_be(words, command) for command in found)


def _may_be(words: list[str], command: SimpleCommand) -> bool:
    """Whether these words are the command's: exactly so, but for those that only the run tells."""
    pattern = [
        re.escape(f"{word.text}\0") if word.fixed else "(?:[^\0]*\0)*" for word in command.words
    ]
    return re.fullmatch("".join(pattern), "".join(f"{word}\0" for word in words)) is not None
