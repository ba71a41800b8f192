"""The globs of rules, against a plain oracle that tries every split."""

import time

from hypothesis import given
from hypothesis import strategies as st

from tiller_daemon.policy import globs

TEXTS = st.text(alphabet="ab *?\\/\n", max_size=8)


def oracle(pattern: str, subject: str) -> bool:
    """The documented meaning, read aloud."""
    if pattern.endswith(" *") and _matches(pattern[:-2], subject):
        return True
    return _matches(pattern, subject)


def _matches(pattern: str, subject: str) -> bool:
    if not pattern:
        return not subject
    if pattern[0] == "*":
        return any(_matches(pattern[1:], subject[start:]) for start in range(len(subject) + 1))
    if pattern[0] == "\\" and pattern[1:2] in ("*", "?", "\\") and pattern[1:2]:
        return subject[:1] == pattern[1] and _matches(pattern[2:], subject[1:])
    if not subject:
        return False
    return pattern[0] in ("?", subject[0]) and _matches(pattern[1:], subject[1:])


@given(TEXTS, TEXTS)
def test_a_glob_means_what_its_document_says(pattern, subject):
    assert globs.matches(pattern, subject) == oracle(pattern, subject)


@given(TEXTS, TEXTS)
def test_an_escaped_text_matches_itself_and_nothing_else(text, other):
    assert globs.matches(globs.escape(text), text)
    assert globs.matches(globs.escape(text), other) == (text == other)


@given(TEXTS, TEXTS)
def test_the_longest_name_of_a_pattern_is_within_one_name_of_whatever_matches(pattern, subject):
    name = globs.longest_name(pattern)
    if globs.matches(pattern, subject):
        assert any(name in part for part in subject.split("/"))


def test_the_longest_name_is_what_tells_most():
    assert globs.longest_name("*.aws/credentials*") == "credentials"
    assert globs.longest_name("*.gnupg/*") == ".gnupg"
    assert globs.longest_name(r"a\*b?c") == "a*b"
    assert globs.longest_name("*") == ""


def test_many_stars_take_no_exponential_time():
    began = time.thread_time()
    assert not globs.matches("*a" * 40 + "b", "a" * 4_000)
    assert time.thread_time() - began < 2


def test_case_and_brackets_are_plain():
    assert not globs.matches("LS", "ls")
    assert not globs.matches("[ab]", "a")
    assert globs.matches("src/*.py", "src/a/b.py")
    assert globs.matches("git push *", "git push")
    assert not globs.matches("git push *", "git pushx")
