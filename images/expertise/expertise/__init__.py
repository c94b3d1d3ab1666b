"""Methods that score how well reviewers know the subjects of submissions."""
