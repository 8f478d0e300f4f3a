"""From a graph that mutates to one that does not."""
