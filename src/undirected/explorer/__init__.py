"""Pages on which people see a model think: inference in the browser, and what builds the page."""
