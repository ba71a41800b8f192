"""TOML from outside: what is refused, so that parsing never takes longer than its size says."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.each import each
from tiller_daemon.config.toml import KEY_PARTS_MAX, Key, TomlError, line_of, parse_toml

LONGEST = ".".join("a" * KEY_PARTS_MAX)
TOO_LONG = f"{LONGEST}.a"

QUOTED = st.sampled_from(
    [
        '""',
        "''",
        f'"{TOO_LONG}"',
        f"'{TOO_LONG}'",
        '"\\""',
        "'\\'",
        f'"""{TOO_LONG}"""',
        '"""a"b""c"""',
        '"""a""""',
        '"""a"""""',
        '"""\\""""',
        f'"""\n{TOO_LONG} = 1\n"""',
        f"'''{TOO_LONG}'''",
        "'''a'b''c'''",
        "'''a''''",
        "'''a'''''",
        f"'''\n{TOO_LONG} = 1\\'''",
    ]
)
VALUES = QUOTED | st.sampled_from(["1.5", "12:30:00.5", "1979-05-27T07:32:00.999Z", "true"])
LONG = f"k# . {LONGEST}"
KEYS = st.sampled_from(["k#", "'k.k#'", '"k\\".k#"', f"k#{LONGEST[1:]}", LONG])
COMMENTS = st.sampled_from(["", f" # {TOO_LONG}", ' # """', " # '''", ' # "'])


def numbered(pairs: list[tuple[str, str]], between: str) -> str:
    """Return statements whose keys differ."""
    texts = (f"{key.replace('#', str(n))} = {value}" for n, (key, value) in enumerate(pairs))
    return between.join(texts)


LISTS = st.lists(VALUES, min_size=1, max_size=3).map(lambda values: f"[{', '.join(values)}]")
TABLES = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=3).map(
    lambda pairs: f"{{{numbered(pairs, ', ')}}}"
)
LINES = st.tuples(VALUES | LISTS | TABLES, COMMENTS).map("".join)


@each(
    ("text", "line"),
    [
        ("a" + ".a" * 32_000 + "=1", 1),
        ("x = 1\r\n[" + "a." * 32_000 + "a]\r\n", 2),
        ("\n\n[[" + "' ' . " * 10_000 + '"" ]]', 3),
        ('x = """\n""""" # "\n' + TOO_LONG + "=1", 3),
        ("x = { y = {" + TOO_LONG + "=1}}", 1),
        ('x = {a="""b"""", ' + TOO_LONG + "=1}", 1),
    ],
)
def test_a_key_of_too_many_parts_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(TomlError, match=f"^line {line} has a key of more than {KEY_PARTS_MAX}"):
        parse_toml(text)


@given(st.lists(st.tuples(KEYS, LINES), max_size=4))
def test_no_other_key_is_refused(statements: list[tuple[str, str]]) -> None:
    """Strings and comments hold what looks like a key, or like the end of a string."""
    text = numbered(statements, "\n")
    known = tomllib.loads(text)
    if f". {LONGEST}" in text:
        with pytest.raises(TomlError, match="has a key of more than"):
            parse_toml(text)
    else:
        assert parse_toml(text) == known


@each("opening", ['"""', "'''", '"', "'", '"""\\', '"\\', "#", "a = \"\"\"'''"])
def test_what_is_not_closed_is_an_error_for_the_parser(opening: str) -> None:
    with pytest.raises(TomlError, match="not valid TOML"):
        parse_toml(f"a = {opening}{TOO_LONG}")


@pytest.mark.parametrize("text", ["a = " + "9" * 5_000, "a = " + "{a=" * 10_000])
def test_what_python_refuses_is_an_error_like_any_other(text: str) -> None:
    with pytest.raises(TomlError):
        parse_toml(text)


DOCUMENT = '''\
model = "a/b"
[providers.p] # the table
api = """
[models]
"""
headers = { "x" = "1" }
timeouts.idle_s = 3
[models."p/m"]
[[hooks]]
on = "x"
[[hooks]]
command = [
  "[providers]",
  "[[hooks]]",
]
on = "y"
[[agents.a.permissions]]
action = "deny"
'''


@each(
    ("key", "line"),
    [
        (("model",), 1),
        (("providers", "p"), 2),
        (("providers", "p", "api"), 3),
        (("providers", "p", "headers", "x"), 6),
        (("providers", "p", "timeouts", "idle_s"), 7),
        (("providers", "p", "query"), 2),
        (("models", "p/m"), 8),
        (("hooks", 0, "on"), 10),
        (("hooks", 1), 11),
        (("hooks", 1, "command", 0), 12),
        (("hooks", 1, "on"), 16),
        (("agents", "a", "permissions", 0, "action"), 18),
        (("sandbox",), None),
        ((), None),
    ],
)
def test_the_line_of_a_key_is_that_of_its_statement_or_its_table(
    key: Key, line: int | None
) -> None:
    assert line_of(DOCUMENT, key) == line
