"""Programs that show one use of the bridge each. Run one with `python -m bridge.examples.NAME`."""
