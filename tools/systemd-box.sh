#!/usr/bin/env bash
# Runs SCRIPT as root under a real systemd as PID 1, in namespaces of its own.
#   systemd-box.sh UNITS SCRIPT [SECONDS]     exit status: SCRIPT's; its output is printed; limit 120 s by default
# systemd sees the unit files of the folder UNITS, the box's own and journald's: none of the machine's other units run.
# SCRIPT can call systemctl and journalctl. The file system is the machine's, but for /run, /var, /opt and /srv, which
# are empty, and /etc, which is a copy: what is changed there is gone with the box. The network is a loopback of its own.
# Needs root, util-linux and systemd; control groups of version 1 or 2.
set -euo pipefail
units=$(readlink -f "$1") script=$(readlink -f "$2") limit=${3:-120}
systemd=/usr/lib/systemd/systemd
die() { echo "systemd-box: $*" >&2; exit 125; }
[[ $(id -u) == 0 ]] || die "needs root: it makes namespaces and control groups"
[[ -x $systemd && -f /lib/systemd/system/systemd-journald.service ]] || die "systemd is not installed (apt-get install systemd)"
unshare --fork --pid --mount --uts --ipc --net --cgroup true 2>/dev/null || die "this machine gives no namespaces of its own (unshare failed)"
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
chmod 755 "$box"
mkdir "$box/units" "$box/etc"
cp -r "$units"/. "$box/units/"
for name in systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket; do cp "/lib/systemd/system/$name" "$box/units/"; done
for name in sysinit basic sockets shutdown multi-user network network-online nss-lookup local-fs remote-fs umount timers paths slices; do
  printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' "$name" >"$box/units/$name.target"
done
printf '[Unit]\nDefaultDependencies=no\nRequires=box.service\n' >"$box/units/box.target"
cat >"$box/units/box.service" <<T
[Unit]
DefaultDependencies=no
Wants=systemd-journald.service systemd-journald.socket
After=systemd-journald.service
[Service]
Type=oneshot
TimeoutStartSec=infinity
Environment="PATH=$PATH" "HOME=${HOME:-/root}"
WorkingDirectory=$PWD
ExecStart=/bin/sh -c '"$script" >"$box/said" 2>&1; echo \$\$? >"$box/rc"'
T
(
  for _ in $(seq $((limit * 5))); do [[ -f $box/rc ]] && break; sleep 0.2; done
  sleep 0.2; [[ -f $box/pid ]] && kill -9 "$(cat "$box/pid")" 2>/dev/null
) &
watcher=$!
unshare --fork --pid --kill-child --mount --uts --ipc --net --cgroup --mount-proc bash -c '
    set -e
    mount --make-rprivate / && mount --make-rshared /  # nothing goes out, and inside it is as on a machine
    mount -t tmpfs -o mode=755 tmpfs /run && mkdir -p /run/systemd /run/lock
    cp -a /etc/. "$1/etc/" && mount --bind "$1/etc" /etc
    mount -t tmpfs -o mode=755 tmpfs /var && mkdir -p /var/lib /var/log /var/cache && mkdir -m 1777 /var/tmp
    mount -t tmpfs -o mode=755 tmpfs /opt && mount -t tmpfs -o mode=755 tmpfs /srv
    echo box >/etc/hostname
    mkdir -p /etc/systemd/journald.conf.d && printf "[Journal]\nReadKMsg=no\n" >/etc/systemd/journald.conf.d/box.conf
    exec env -i container=box SYSTEMD_UNIT_PATH="$1/units" SYSTEMD_GENERATOR_PATH=/nonexistent \
      "$2" --system --unit=box.target --log-level=warning --show-status=no
  ' box "$box" "$systemd" >"$box/console" 2>&1 &
echo $! >"$box/pid"
wait "$!" 2>/dev/null || true
wait "$watcher" 2>/dev/null || true
[[ -f $box/said ]] && cat "$box/said"
if [[ ! -f $box/rc ]]; then echo "systemd-box: the script did not finish in $limit s" >&2; tail -5 "$box/console" >&2; exit 124; fi
exit "$(cat "$box/rc")"
