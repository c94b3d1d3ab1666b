"""What each command does, one module a family; ``cli.py`` imports the one that is asked for."""
