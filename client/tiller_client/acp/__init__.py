"""`tiller acp`: the Agent Client Protocol (ACP) on stdio, for editors.

One more client of the daemon: an editor speaks JSON-RPC here, and each of its sessions is one of
the daemon's. Nothing here works on files or talks to a model.
"""
