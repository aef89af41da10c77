"""The data plane: HTTP relay on uvloop transports."""
