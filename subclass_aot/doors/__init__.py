"""Other doors to the engine: joint graphs, `torch.compile`, exported programs, blocks, AOTAutograd's functions."""
