"""Identifiers sort by time; directories follow the platform, and paths of sockets are short."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiller_protocol.ids import ULID_RANDOM_BYTES, Ulids, ulid
from tiller_protocol.places import EVENTS_SOCKET, SOCKET_PATH_BYTES_MAX, find_places

TIMES = st.integers(0, 2**48 - 1)
RANDOMNESS = st.binary(min_size=ULID_RANDOM_BYTES, max_size=ULID_RANDOM_BYTES)


@given(TIMES, TIMES, RANDOMNESS, RANDOMNESS)
def test_ids_sort_by_time_and_then_by_randomness(time, other_time, randomness, other):
    first, second = ulid(time, randomness), ulid(other_time, other)
    assert (first < second) == ((time, randomness) < (other_time, other))
    assert re.fullmatch("[0-7][0-9A-HJKMNP-TV-Z]{25}", first)


@given(st.lists(st.tuples(st.integers(0, 3), RANDOMNESS), min_size=1))
def test_ids_sort_as_they_are_made_within_a_millisecond_and_if_the_clock_goes_back(moments):
    ulids = Ulids()
    made = [ulids.make(*moment) for moment in moments]
    assert made[0] == ulid(*moments[0])
    assert made == sorted(set(made))


def test_after_the_last_id_of_a_millisecond_comes_one_of_the_next():
    ulids, full = Ulids(), b"\xff" * ULID_RANDOM_BYTES
    ulids.make(7, full)
    assert ulids.make(7, full) == ulid(8, bytes(ULID_RANDOM_BYTES))


def test_an_id_is_the_one_of_the_specification():
    assert ulid(1469918176385, bytes(10)) == "01ARYZ6S410000000000000000"


def test_an_id_needs_ten_random_bytes():
    with pytest.raises(ValueError, match="10 random bytes"):
        ulid(0, b"short")


def test_linux_follows_the_xdg_variables():
    variables = {"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/run/user/7"}
    places = find_places({"HOME": "/h", **variables}, "linux", 7)
    assert places == (Path("/c/tiller"), Path("/s/tiller"), Path("/run/user/7/tiller"))


def test_linux_without_variables_stays_in_the_home_directory():
    state = Path("/h/.local/state/tiller")
    found = find_places({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}, "linux", 7)
    assert found == (Path("/h/.config/tiller"), state, state / "tiller")


def test_macos_keeps_all_in_application_support():
    support = Path("/Users/u/Library/Application Support/tiller")
    found = find_places({"HOME": "/Users/u"}, "darwin", 501)
    assert found == (support, support / "state", support / "runtime")


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_tiller_home_puts_all_under_one_directory(platform):
    variables = {"TILLER_HOME": "/t", "XDG_RUNTIME_DIR": "/run"}
    found = find_places(variables, platform, 7)
    assert found == (Path("/t/config"), Path("/t/state"), Path("/t/runtime"))


def test_every_place_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = find_places({"TILLER_HOME": "here"}, "linux", 7, state=Path("mine"))
    assert found == (tmp_path / "here/config", tmp_path / "mine", tmp_path / "here/runtime")


def test_a_runtime_directory_given_by_hand_wins():
    found = find_places({"TILLER_HOME": "/t"}, "linux", 7, runtime=Path("/r"))
    assert found.runtime == Path("/r")
    assert found.state == Path("/t/state")


@given(st.text(alphabet="aé", min_size=60, max_size=120))
@pytest.mark.promise("T14")
def test_a_path_too_long_for_a_socket_becomes_a_short_one_of_its_own(name):
    home = f"/home/{name}"
    places = find_places({"TILLER_HOME": home}, "linux", 7)
    assert len(bytes(places.runtime / EVENTS_SOCKET)) <= SOCKET_PATH_BYTES_MAX
    assert find_places({"TILLER_HOME": home}, "linux", 7) == places
    if not places.runtime.is_relative_to(home):
        other = find_places({"TILLER_HOME": home + "x"}, "linux", 7)
        assert other.runtime != places.runtime
        assert "-7-" in places.runtime.name
