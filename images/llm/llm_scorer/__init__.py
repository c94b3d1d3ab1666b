"""Scores reviewers for submissions by asking a language model, and by replaying what it said."""
