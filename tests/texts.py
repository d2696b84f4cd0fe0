"""Text for hypothesis: all of Unicode that UTF-8 can encode."""

from hypothesis import strategies as st

# Not by `codec="utf-8"`, as which hypothesis also reads `st.text()`: that asks the codec for each character,
# which takes each process seconds in a new checkout.
UNICODE = st.characters(exclude_categories=["Cs"])
