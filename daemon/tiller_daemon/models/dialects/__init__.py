"""The formats of model APIs, one package each, and the code that these packages share.

Each API has its own package, with `adapter.py`, `request.py` and `stream.py`. The packages share
`stream_decoder.py`.
"""
