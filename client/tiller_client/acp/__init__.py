"""`tiller acp`: the Agent Client Protocol (ACP) on stdio, for editors.

It is a client of the daemon like the others: an editor speaks JSON-RPC with it, and each of the
editor's sessions is a session of the daemon. It never edits files or talks to a model.
"""
