"""Listeners of the recorder, one subject in a file: each notes something of every operator that runs."""
