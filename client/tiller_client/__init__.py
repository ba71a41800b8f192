"""The thin client `tiller`: talks to the daemon and imports none of its code.

Its library for other frontends is `tiller_client.api`; apart from that and `errors`, no name here
is public.

Only `console.py` writes text to stdout and stderr. `streams.py` finds out what these streams can
show. `variables.py` reads commands from environment variables such as `PAGER`. `program_name.py`
has the first words of the commands that hints name. `browser_login.py` runs the login of `tiller
login` and `tiller acp` in a browser. `json_lines.py` splits the input of `tiller
rpc` and `tiller acp` into lines. `ordered_jobs.py` runs the submissions of `tiller rpc`.
`demo_play.py` has the script of the demo. `service/` writes service files for systemd and launchd.
"""
