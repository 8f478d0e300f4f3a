"""What only some programs need: one folder for each subject, which the stages know by a protocol and not by name."""
