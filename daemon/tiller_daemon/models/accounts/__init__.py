"""Accounts with model providers: logins in a browser, with which a plan is used instead of a key.

`chatgpt.py` has all that is particular to OpenAI's "Sign in with ChatGPT". `logins.py` performs
logins, each an attempt (`attempt.py`); `id_token.py` checks who has logged in. `accounts.py` renews
and revokes tokens, by the requests in `oauth.py`. `store.py` keeps each login in a private file,
with a lock, because several processes may renew it. Tokens leave this package only as an
`AccountKey`.
"""
