"""The compiled helper and its Python twin; `speed` chooses. Both do the same, and tests compare them."""
