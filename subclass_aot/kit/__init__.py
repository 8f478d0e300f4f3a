"""The kit: how a wrapper class is written, flattened and rebuilt."""
