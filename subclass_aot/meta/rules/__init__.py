"""Rules for operators without data, where torch has none or not what the kernel does."""
