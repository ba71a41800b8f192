"""Snapshots of a workspace before and after a step, in the daemon's own git repository.

`shadow_repository.py` is the daemon's own git repository for a workspace. `taking.py` takes the
snapshots. `origins.py` tells which changes a revert must leave alone.

Snapshots show which files a step has changed (`snapshots/snapshots.py`). The daemon takes a
snapshot before the step's first call that may write, and another after the step's last call. Both
are stored in the daemon's own git directory for the workspace. Their difference becomes a `patch`
item.

git tells which files have changed (`taking.py`): one process compares the stamps in its index with
the files. The daemon reads these files itself, through descriptors that follow no link
(`blobs.py`), because git would follow a link that a command puts in a file's place meanwhile. The
first snapshot of a step begins as soon as the response contains a call that may write, so the call
rarely waits for it.

A revert may only change what is known to be the work of the step's calls. The patch therefore names
changes that may have another origin (`unknown`), and a revert leaves them alone (`origins.py`):

- A file was there before, but no snapshot has its content: it was ignored, secret, too large or in
  a repository of its own.
- The file is older than the step, and the first snapshot does not have its content: it was moved
  from such a place.
- The file was last changed while git took one of the snapshots, or between the first snapshot and
  the first call.

The daemon's own directories are in no snapshot, and no revert touches them.

If a turn is interrupted during a step, the daemon takes the step's second snapshot before the
turn's end is in the log. So what anybody changes after the end is not in the patch. If the daemon
is killed during a step, there is no second snapshot. The step's changes are then unknown, and its
patch names no snapshots. If a snapshot fails, the rest of the turn has none, and the next turn
tries again.

The op `revert` uses the patches to find the files to restore (`session/reverting.py`). It leaves a
file as it is if anything other than the reverted steps has changed the file since the first of
these steps. The session's loop handles `revert`, so no turn can start meanwhile. The files are
restored before the event `history_reverted` goes into the outbox. If the daemon dies before the
event is committed, it undoes the restore when it starts again, using a journal next to the
snapshots.
"""
