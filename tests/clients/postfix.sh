#!/bin/sh
# Mail routes with Debian's Postfix, which delivers into a folder that postfix.py reads. It is not installed: its package is
# unpacked into DIR and laid over the system's folders in a mount namespace of its own. Needs root.
#   postfix.sh DIR
set -eu
dir=$1
here=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] || { echo "  SKIP   postfix: needs root"; exit 0; }

if [ "${2-}" != inside ]; then
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    if ! [ -x "$dir/root/usr/sbin/postfix" ]; then
        (
            cd "$dir"
            export DEBIAN_FRONTEND=noninteractive
            apt-get -qq update && apt-get -qq -o APT::Sandbox::User=root download postfix &&
                apt-get -qq -y -o Dpkg::Use-Pty=0 satisfy --no-install-recommends "$(dpkg-deb -f postfix_*.deb Depends)" &&
                dpkg -x postfix_*.deb root
        ) >"$dir.log" 2>&1 || { cat "$dir.log"; exit 1; }
    fi
    exec unshare --mount "$0" "$dir" inside
fi

port=$(/usr/bin/python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
mkdir -p "$dir/rw"
mount -t tmpfs tmpfs "$dir/rw"
mkdir -p "$dir/rw/etc" "$dir/rw/etc.work" "$dir/rw/var" "$dir/rw/var.work" "$dir/rw/inbox"
mount -t overlay overlay -o "lowerdir=$dir/root/usr:/usr" /usr
mount -t overlay overlay -o "lowerdir=$dir/root/etc:/etc,upperdir=$dir/rw/etc,workdir=$dir/rw/etc.work" /etc
mount -t overlay overlay -o "lowerdir=$dir/root/var:/var,upperdir=$dir/rw/var,workdir=$dir/rw/var.work" /var
echo "postfix:x:5550:5550::/var/spool/postfix:/usr/sbin/nologin" >>/etc/passwd
printf 'postfix:x:5550:\npostdrop:x:5551:\n' >>/etc/group
sed "s/^smtp      inet .*/$port inet n - n - - smtpd/" /usr/share/postfix/master.cf.dist >/etc/postfix/master.cf
printf '/^(ann|j.*)@home\\.example$/ new-mail/\n' >/etc/postfix/mailboxes
cat >/etc/postfix/main.cf <<END
compatibility_level = 3.6
myhostname = relay.test
mydestination =
inet_interfaces = 127.0.0.1
mynetworks = 127.0.0.0/8
alias_maps =
maillog_file = /var/log/postfix.log
virtual_mailbox_domains = home.example
virtual_mailbox_base = $dir/rw/inbox
virtual_mailbox_maps = regexp:/etc/postfix/mailboxes
virtual_uid_maps = static:65534
virtual_gid_maps = static:65534
virtual_minimum_uid = 100
END
mkdir -p /var/spool/postfix /var/lib/postfix
chown postfix /var/lib/postfix
chmod 777 "$dir/rw/inbox"
export LD_LIBRARY_PATH=/usr/lib/postfix
postfix set-permissions >/dev/null 2>&1 || true
postfix start >/dev/null 2>&1
trap 'postfix stop >/dev/null 2>&1' EXIT
env -u LD_LIBRARY_PATH /usr/bin/python3 -B "$here/postfix.py" "$port" "$dir/rw/inbox/new-mail/new" || {
    tail -30 /var/log/postfix.log
    exit 1
}
