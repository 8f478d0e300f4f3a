"""Wrappers on several devices: sharding, placements, collectives."""
