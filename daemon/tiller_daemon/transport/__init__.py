"""The transport between frontends and the daemon, and the runtime directory with its sockets."""
