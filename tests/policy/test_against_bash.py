"""What bash itself would run, against what was taken apart: no command is ever missed (B38).

Commands are made of pieces that shells and parsers love to disagree on. Bash runs each with a
`PATH` without programs and reports every command that it looked for.
"""

import os
import random
import re
import shutil
import subprocess

import pytest

from tiller_daemon.policy.shell_commands import Command, Parsed, parse_command

BASH = shutil.which("bash")
SEED = int(os.environ.get("TEST_SEED", "20261121"))
ROUNDS = 6_000
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
    *("aa bb", "aa | bb", "aa && bb || cc", "(aa; bb)", "{ aa; bb; }", "aa $(bb)", "aa `bb`"),
    *('aa "x $(bb)"', "if aa; then bb; else cc; fi", "for x in $(aa) b; do bb $x; done"),
    *("case $(aa) in bb) cc;; *) dd;; esac", "aa <<E\nbb\nE\ncc", "aa <<'E'\nbb\nE\ncc"),
    *("aa <(bb)", "aa 2>&1 | bb", "x=$(aa); bb", "! aa", "aa & bb", "aa # bb\ncc", "time aa"),
    *('[ -n "$(aa)" ] && bb', "[[ a == b ]] || cc", "aa \\\nbb", "'aa' bb", "a\\a bb"),
    *("x=aa; bb $x", "for x in aa bb; do cc $x; done", 'x=aa && bb "$x" cc', "x=aa\nbb ${x}y"),
    *("aa >&2 bb", "aa ${x:-bb}", "aa ${x##*/}", "x+=aa; bb $x", "x=; aa $x bb", "x=aa bb $x"),
    *("for x in aa; do x=bb; cc $x; done", "x=aa | bb; cc $x", "x=aa & bb $x", "(x=aa); bb $x"),
    *("aa && x=bb; cc $x", "x=aa; x=bb; cc $x", "read x <<E\naa\nE\nbb $x", "aa {bb,cc} {1..3}"),
    *("aa 2>/dev/null", "aa <<< bb", "aa |& bb", "env CI=1 aa", "CI=1 aa", "exec aa"),
]
REPORTING = """
exec 9>&{descriptor}; PATH=/nonexistent
command_not_found_handle() {{ local IFS=$'\\036'; printf '%s\\037' "$*" >&9; return 0; }}
eval "$SCRIPT" 2>/dev/null
"""


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
def test_b38_bash_runs_nothing_that_was_not_found(tmp_path):
    judged = 0
    for number in range(ROUNDS):
        text = _script(random.Random(f"{SEED}-{number}"))
        parsed = parse_command(text)
        if not parsed.certain or re.search(r"\b(?:while|until)\b", text):
            continue
        ran = _run(text, tmp_path)
        missed = [words for words in ran if not _is_found(words, parsed)]
        assert not missed, f"TEST_SEED={SEED}, number {number}: {text!r} ran {missed}"
        assert not list(tmp_path.iterdir()), f"TEST_SEED={SEED}: {text!r} wrote a file"
        judged += bool(ran)
    assert judged >= ROUNDS // 10


def _script(choose: random.Random) -> str:
    if choose.random() < 0.3:
        return "".join(choose.choice(PIECES) for _ in range(choose.randint(2, 14)))
    joint = choose.choice([";", "\n", " && ", " | ", ""])
    text = joint.join(choose.choice(SCRIPTS) for _ in range(choose.randint(1, 3)))
    for _ in range(choose.randint(0, 3)):
        start, end = sorted((choose.randint(0, len(text)), choose.randint(0, len(text))))
        match choose.randint(0, 3):
            case 0 | 1:
                text = text[:start] + choose.choice(PIECES) + text[start:]
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
                [BASH, "--norc", "--noprofile", "-c", REPORTING.format(descriptor=writer)],
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


def _is_found(words: list[str], parsed: Parsed) -> bool:
    inside = [wrapper.split()[0] for wrapper in parsed.wrappers]
    return words[0] in inside or any(_may_be(words, command) for command in parsed.commands)


def _may_be(words: list[str], command: Command) -> bool:
    known = command.syntax.words
    if known[0].text != words[0]:
        return False
    if all(word.fixed and not word.globs for word in known):
        return [word.text for word in known] == words
    return True
