# Sourced by the scripts beside it: goes to the repository's root and offers `need`, which keeps .venv up to date.

cd -P -- "$(dirname "${BASH_SOURCE[0]}")/.." >/dev/null

say() { printf '%s\n' "-- $*" >&2; }
die() { printf '%s\n' "${0##*/}: $*" >&2; exit 1; }

# Runs the interpreter instead of asking whether it exists: a version manager's shim may exist and run nothing.
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.15 python3.14 python3.13 python3.12 python3.11; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
        [ "$candidate" != "${PYTHON:-}" ] || die "PYTHON=$PYTHON is not a Python 3.11 or newer"
    done
    die "needs Python 3.11 or newer; install one, or name it: PYTHON=/path/to/python3 $0"
}

# pip tells where it runs from, so this is false for a broken .venv and for one that was copied along with its checkout.
venv_is_sound() {
    new_enough .venv/bin/python && [[ "$(.venv/bin/pip --version 2>/dev/null)" == *" from $PWD/.venv/"* ]]
}

make_venv() {
    local python
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die "$python cannot make virtual environments; on Debian and Ubuntu install the package python3-venv"
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
}

# Twice quiet: errors only. The fork of urllib3 that niquests brings would replace urllib3 for requests and botocore too.
pip_install() {
    URLLIB3_NO_OVERRIDE=1 .venv/bin/python -m pip install -qq --disable-pip-version-check --no-binary urllib3-future "$@"
}

# need NAME ARGUMENTS...: installs what these arguments of `pip install` ask for, unless NAME's stamp says it was done.
need() {
    local stamp=.venv/.installed-$1
    shift
    local wanted
    wanted="$PWD: $* $(cksum <pyproject.toml)"
    if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && new_enough .venv/bin/python; then
        return
    fi
    venv_is_sound || make_venv
    say "installing $*"
    # Dependency groups need pip 25.1.
    pip_install --upgrade 'pip>=25.1'
    pip_install "$@"
    echo "$wanted" >"$stamp"
}
