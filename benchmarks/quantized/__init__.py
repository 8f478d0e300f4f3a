"""The ready-made weights in three models of transformers, beside dense ones and those of other libraries."""
