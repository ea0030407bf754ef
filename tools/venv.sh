#!/bin/sh
# Make a virtual environment in the folder $1 with a Python that will do and a recent pip.
# The interpreter is $PYTHON if set, else the first that works among the usual names.
set -eu

venv=$1
report=$(mktemp)
trap 'rm -f "$report"' EXIT

# Say "good", or why interpreter $1 will not do. It is run, not only looked up: a name on PATH can
# be a stub that fails.
judge() {
    command -v "$1" >/dev/null 2>&1 || { echo "not found"; return; }
    "$1" - 2>/dev/null <<'PYTHON' || echo "found, but it does not run"
import sys

version = "%d.%d.%d" % sys.version_info[:3]
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    print("is Python " + version)
else:
    try:
        import ensurepip, venv
        print("good")
    except ImportError as error:
        print("is Python %s, but lacks the module %s" % (version, error.name))
PYTHON
}

if [ -n "${PYTHON:-}" ]; then
    set -- "$PYTHON"
else
    set -- python3.13 python3.12 python3.11 python3 python
fi
found=
for candidate in "$@"; do
    verdict=$(judge "$candidate")
    if [ "$verdict" = good ]; then
        found=$candidate
        break
    fi
    echo "  $candidate: $verdict" >>"$report"
done

if [ -z "$found" ]; then
    {
        echo "Python 3.11, 3.12 or 3.13 with the modules venv and ensurepip is needed. Tried:"
        cat "$report"
        if grep -q lacks "$report"; then
            echo "On Debian and Ubuntu those modules come with: apt-get install python3-venv"
        fi
        echo "Install such a Python, or name one: make PYTHON=/path/to/python3.12 ..."
    } >&2
    exit 1
fi

echo "Making $venv with $("$found" --version) ($found)"
if ! "$found" -m venv --clear "$venv"; then
    echo "Could not make $venv: see the message above." >&2
    exit 1
fi
if ! "$venv/bin/python" -m pip install --quiet --upgrade "pip>=25.1"; then
    echo "Could not install a recent pip into $venv: see pip's message above." >&2
    echo "Packages come from PyPI: check the network and pip's settings, then run make again." >&2
    exit 1
fi
