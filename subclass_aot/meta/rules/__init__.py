"""What operators give without data, where torch says nothing or not what the kernel does."""
