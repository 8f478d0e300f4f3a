"""What a class statement declares: fields, outer metadata, constructor, gradients."""
