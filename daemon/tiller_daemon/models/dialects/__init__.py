"""The formats of model APIs, one package each, and the code that these packages share.

Each API has its own package, with `adapter.py`, `request.py` and `stream.py`. They share the rest:

- `rendering.py` renders calls for a request. `response_splitter.py` splits a history into
  responses.
- `opaque.py` seals what a provider wants back unchanged, so that no other provider gets it.
- `stream_decoder.py` is the base of `stream.py`. `counts.py` reads token counts of any form,
  `surrogates.py` joins halves of emojis, and `hosted_output.py` shortens the output of hosted
  tools.
"""
