"""The compiled helper and its Python twin. `speed` chooses one; both do the same, and tests compare them."""
