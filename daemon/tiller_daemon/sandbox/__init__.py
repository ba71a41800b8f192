"""Sandboxes: what a command may do, and the mechanisms that enforce it.

`sandboxes.py` computes a command's `SandboxProfile` from its level; `base.py` describes profiles.
`bubblewrap.py`, `landlock.py` and `seatbelt.py` enforce them. `detect.py` finds the mechanism that
works on this machine. `git_repository.py` asks git about repositories. `protected.py` finds what
other programs execute by themselves, and `quarantine.py` puts aside what commands made of that
kind. `scan.py` finds protected files and other repositories. `known_paths.py` lists names and
places.

`sandbox/level.py` defines the four levels. `policy/shell/levels.py` chooses a command's
level from the rules and from the apparent purpose of the command line. A wrong guess about the
purpose costs only a question or a failed command, because the sandbox still enforces its limits.
Only one decision must be exact: whether a line is `plain`. A plain line runs only the commands that
the parser has found in it (`policy/shell/command_line.py`, tested against bash itself). Rules can
loosen the sandbox only if the line is plain.

`session/calls/turn_sandboxes.py` prepares the sandbox for a call. `sandbox/sandboxes.py` computes
a command's limits as a `SandboxProfile`, which `bubblewrap.py` enforces on Linux and `seatbelt.py`
on macOS. If bubblewrap does not work, `landlock.py` takes its place (`detect.py`). Before each
command, `scan.py` searches what the command will see for files that rules protect, and for other
repositories.

What other programs execute by themselves can't be changed by commands. `protected.py` finds what
exists, and the profile makes it read-only. git itself says what it would execute
(`git_repository.py`). A mount can't prevent new names. So `quarantine.py` lists the names that
matter before and after each command, and renames new ones. The daemon does nothing else with what a
command made, and it accesses these names only through descriptors of directories, without following
links. While a command runs, the state directory has a record of the first list, which the next
daemon uses if this one is killed.

If a sandbox stops a command, the user may allow a second run in a looser sandbox
(`session/calls/escalation.py`). The model can't request a second run. If a command seems only to
read, it runs concurrently with other calls. If it is then stopped because it tried to write,
`turn/dispatch.py` waits until the other calls have ended. Then the user is asked and, if they
agree, the command runs again alone.

If the session's sandbox has no network, a command can use the network only if its call has the
permission `network`. The table of commands in `policy/shell/network.py` decides only whether to ask
for this permission. On a machine where no sandbox works, each command needs the permission
`unsandboxed`, except in the mode `full_access`.
"""
