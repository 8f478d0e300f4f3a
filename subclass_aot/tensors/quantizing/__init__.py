"""Models whose weights become tensors of another class: which, and what of them products and embeddings read."""
