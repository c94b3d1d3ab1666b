"""Is a bundle what it claims to be? ``bundle`` asks; the other modules answer a part each."""
