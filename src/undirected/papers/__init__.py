"""The papers, one folder each, and one file for every table or figure."""
