"""The only way out of a container: a proxy in the supervisor that reaches allowed hosts alone."""
