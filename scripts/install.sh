#!/bin/sh
# Installs tiller for this user, by uv. Needs no root. Run it again to update.
#   sh install.sh              install or update
#   sh install.sh --uninstall  remove it again; your sessions and settings stay
# If uv is missing, it is installed in a directory of its own, beside the tools that it installs, and is
# removed with them. What is verified: uv's wheel by the SHA-256 below, and by uv every package by the hash
# in PyPI's index. Everything is loaded over HTTPS.
# TILLER_PACKAGE names what to install instead of the newest release: tillerd==0.1.0, a wheel, or
# 'tillerd[keyring]'.
set -eu

package="${TILLER_PACKAGE:-tillerd}"
data="${XDG_DATA_HOME:-$HOME/.local/share}"
own="$data/tiller-uv"
# Completions and man pages: uv leaves them in the tool's environment, where no shell looks.
shared="bash-completion/completions/tiller zsh/site-functions/_tiller fish/vendor_completions.d/tiller.fish
man/man1/tiller.1 man/man1/tillerd.1"

# uv 0.13.9 as on PyPI. The builds for Linux need no C library.
uv_wheel() {
    case "$(uname -s) $(uname -m)" in
        "Linux x86_64")
            sha256=2c45530751517d6c3bbc69a19473f6effe47cce047bede01ffd8af7ea7b36b25
            path=fe/fe/794884de0efd3ac77a427cab21aa72c0483e100c55a42cd5cbb02c141b84/uv-0.13.9-py3-none-musllinux_1_1_x86_64.whl
            ;;
        "Linux aarch64")
            sha256=5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe
            path=57/15/94b6cd62ac3ff6550288328e8035288875197cbc183f51554b266a69877b/uv-0.13.9-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl
            ;;
        "Darwin arm64")
            sha256=66c512266d633bef48384a1f53003f41f2a8e7b36fe6e7fbfd3e0fd52d96fa63
            path=f3/a7/a8d7b074798c7fb3b26b37584b8fe2e29df2ccdc24ce7902caab2a53edbf/uv-0.13.9-py3-none-macosx_11_0_arm64.whl
            ;;
        "Darwin x86_64")
            sha256=c16ed11e013557536b3e60065f1b912f6407bd6518e041b961e23ef9e6b4fbf5
            path=1e/db/08e9ef4879bd667e6d7b4705e594e5bd3e4585f10fc63cb16b9fa2fac63e/uv-0.13.9-py3-none-macosx_10_12_x86_64.whl
            ;;
        *) fail "there is no uv for $(uname -s) on $(uname -m) here; install tiller with pip or pipx. Windows: use WSL 2" ;;
    esac
}

say() { printf 'tiller: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

load() { # URL FILE
    if has curl; then
        curl --proto '=https' --tlsv1.2 --fail --silent --show-error --location --output "$2" "$1"
    elif has wget; then
        wget --quiet --https-only --output-document="$2" "$1"
    else
        fail "curl or wget is needed to load uv"
    fi
}

sum() { # FILE
    if has sha256sum; then
        sha256sum "$1" | cut -d' ' -f1
    else
        shasum -a 256 "$1" | cut -d' ' -f1
    fi
}

unpack() { # ARCHIVE DIRECTORY: a wheel is a zip archive
    if has unzip; then
        unzip -q "$1" -d "$2"
    elif has python3; then
        python3 -m zipfile -e "$1" "$2"
    else
        tar -xf "$1" -C "$2" || fail "unzip or python3 is needed to unpack uv"
    fi
}

install_uv() {
    say "installing uv in $own"
    uv_wheel
    mkdir -p "$own"
    load "https://files.pythonhosted.org/packages/$path" "$own/uv.whl"
    if [ "$(sum "$own/uv.whl")" != "$sha256" ]; then
        rm -r "$own"
        fail "uv's download has the wrong checksum, and was removed; nothing was installed"
    fi
    mkdir "$own/wheel"
    unpack "$own/uv.whl" "$own/wheel"
    mv "$own"/wheel/uv-*.data/scripts/uv "$own/uv"
    chmod 755 "$own/uv"
    rm -r "$own/wheel" "$own/uv.whl"
}

choose_uv() {
    uv=uv
    if [ -d "$own" ] || ! has uv; then
        uv="$own/uv"
        export UV_TOOL_DIR="$own/tools" UV_PYTHON_INSTALL_DIR="$own/python" UV_NO_CACHE=1
    fi
}

install() {
    has git || say "tiller needs git, too; please install it"
    choose_uv
    has "$uv" || install_uv
    "$uv" tool install --quiet --python '>=3.11' --upgrade "$package"
    environment="$("$uv" tool dir)/tillerd"
    programs="$("$uv" tool dir --bin)"
    for file in $shared; do
        mkdir -p "$data/${file%/*}"
        ln -sf "$environment/share/$file" "$data/$file"
    done
    say "installed $("$programs/tiller" --version) in $environment"
    say "its programs are in $programs, its completions and man pages in $data"
    case ":$PATH:" in
        *":$programs:"*) ;;
        *) say "add that directory to your PATH: export PATH=\"$programs:\$PATH\"" ;;
    esac
    say "try it: tiller demo     set it up: tiller init     remove it: sh install.sh --uninstall"
}

uninstall() {
    choose_uv
    has "$uv" || fail "nothing to uninstall: there is neither uv nor $own"
    environment="$("$uv" tool dir)/tillerd"
    [ -d "$environment" ] || fail "nothing to uninstall: there is no $environment"
    "$environment/bin/tiller" daemon uninstall
    "$environment/bin/tiller" daemon stop
    "$uv" tool uninstall --quiet tillerd
    for file in $shared; do
        if [ -L "$data/$file" ]; then
            rm "$data/$file"
            rmdir -p "$data/${file%/*}" 2>/dev/null || :
        fi
    done
    rm -rf "$own"
    say "removed tiller; your data is still there:"
    if [ -n "${TILLER_HOME:-}" ]; then
        set -- "$TILLER_HOME"
    elif [ "$(uname -s)" = Darwin ]; then
        set -- "$HOME/Library/Application Support/tiller"
    else
        set -- "${XDG_STATE_HOME:-$HOME/.local/state}/tiller" "${XDG_CONFIG_HOME:-$HOME/.config}/tiller"
    fi
    for place in "$@"; do
        [ ! -e "$place" ] || say "  $place"
    done
}

case "${1:-}" in
    "") install ;;
    --uninstall) uninstall ;;
    *) fail "usage: sh install.sh [--uninstall]" ;;
esac
