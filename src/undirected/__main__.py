"""`python -m undirected` is the command line."""

from undirected.cli import main

if __name__ == "__main__":
    main()
