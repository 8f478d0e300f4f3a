"""What serves an operator on a wrapper: rules of its author, built-in ones, plain tensors; and how they are checked."""
