"""The demo: a quantized vision transformer trained through `aot_compile`, equal to eager, and what that costs."""
