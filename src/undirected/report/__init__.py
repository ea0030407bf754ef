"""Records made readable: Markdown tables, pictures, and one self-contained HTML page."""
