"""What methods emit: one JSON object a line, checked before anything believes it."""
