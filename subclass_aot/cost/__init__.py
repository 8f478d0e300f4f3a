"""What a program costs before it runs, and the devices that it runs on."""
