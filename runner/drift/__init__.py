"""Is what was measured before still what is measured now? Re-executions on a schedule."""
