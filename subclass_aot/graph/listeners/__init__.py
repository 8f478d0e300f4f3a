"""What the recorder knows of each operator that runs, one subject in a file: each is a listener of the stream."""
