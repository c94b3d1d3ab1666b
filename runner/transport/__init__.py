"""Images on the move: out of an engine, into one, to a registry; by digest, never by a tag."""
