"""The formats of model APIs, one package each, and the code that these packages share."""
